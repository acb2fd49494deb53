package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	minPartBytes = 5 << 20 // of every part but the last, as Google has it
	maxParts     = 10_000
	compositeKey = "x-goog-meta-put-together-from-parts" // see _backend/fs.go
)

// uploads are those begun and neither completed nor aborted.
type uploads struct {
	folder  string
	mutex   sync.Mutex
	next    int
	pending map[string]*upload
}

type upload struct {
	bucket, name string
	header       http.Header
	initiated    time.Time
	folder       string
	parts        map[int]part
}

type part struct {
	etag, path string
	size       int64
}

// multipart serves POST ?uploads, and by ?uploadId=: PUT &partNumber=, POST, DELETE.
func (s *server) multipart(w http.ResponseWriter, r *http.Request, bucket, name string) {
	if r.Header.Get("x-goog-if-generation-match") != "" {
		// As Google's documentation of multipart uploads has it, under "Considerations".
		refuse(w, r, http.StatusBadRequest, "InvalidArgument", "Preconditions are not supported in multipart uploads.")
		return
	}
	id := r.URL.Query().Get("uploadId")
	if r.Method == http.MethodPost && id == "" {
		id = s.uploads.begin(bucket, name, r.Header)
		writeXML(w, initiateResult{Bucket: bucket, Key: name, UploadID: id})
		return
	}
	found := s.uploads.get(id)
	if found == nil || found.bucket != bucket || found.name != name {
		refuse(w, r, http.StatusNotFound, "NoSuchUpload", "The requested upload was not found.")
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.putPart(w, r, found)
	case http.MethodPost:
		s.complete(w, r, id, found)
	case http.MethodDelete:
		s.uploads.end(id)
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed.")
	}
}

func (u *uploads) begin(bucket, name string, header http.Header) string {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if u.pending == nil {
		u.pending = map[string]*upload{}
	}
	u.next++
	id := fmt.Sprintf("upload-%d", u.next)
	folder := filepath.Join(u.folder, id)
	u.pending[id] = &upload{bucket, name, header.Clone(), time.Now().UTC(), folder, map[int]part{}}
	return id
}

func (u *uploads) get(id string) *upload {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return u.pending[id]
}

func (u *uploads) end(id string) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if found := u.pending[id]; found != nil {
		os.RemoveAll(found.folder)
	}
	delete(u.pending, id)
}

func (s *server) putPart(w http.ResponseWriter, r *http.Request, to *upload) {
	number, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	if err != nil || number < 1 || number > maxParts {
		refuse(w, r, http.StatusBadRequest, "InvalidArgument", "partNumber must be from 1 to 10000.")
		return
	}
	content := newChecked(r.Body, r.Header)
	path, size, err := keepPart(to.folder, number, content)
	if content.wrong != "" {
		refuse(w, r, http.StatusBadRequest, "BadDigest", content.wrong)
		return
	}
	if err != nil {
		refuse(w, r, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	sum, _ := base64.StdEncoding.DecodeString(content.sum("md5"))
	etag := quoted(hex.EncodeToString(sum))
	s.uploads.mutex.Lock()
	to.parts[number] = part{etag, path, size}
	s.uploads.mutex.Unlock()
	w.Header().Set("ETag", etag)
	w.Header().Set("x-goog-hash", "crc32c="+content.sum("crc32c"))
	w.Header().Add("x-goog-hash", "md5="+content.sum("md5"))
}

// keepPart writes a file of its own, since a part that is sent twice may be read meanwhile.
func keepPart(folder string, number int, content io.Reader) (path string, size int64, err error) {
	if err = os.MkdirAll(folder, 0o700); err != nil {
		return "", 0, err
	}
	file, err := os.CreateTemp(folder, fmt.Sprintf("%d-", number))
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	size, err = io.Copy(file, content)
	return file.Name(), size, err
}

func (s *server) complete(w http.ResponseWriter, r *http.Request, id string, from *upload) {
	var asked completeRequest
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Parts) == 0 {
		refuse(w, r, http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or names no parts.")
		return
	}
	s.uploads.mutex.Lock()
	paths, code := from.choose(asked)
	s.uploads.mutex.Unlock()
	if code != "" {
		refuse(w, r, http.StatusBadRequest, code, "The parts named do not agree with those uploaded.")
		return
	}
	header := from.header.Clone()
	header.Set(compositeKey, "yes")
	content := &files{paths: paths}
	defer content.close()
	made, ok := s.create(w, &http.Request{Header: http.Header{}, URL: r.URL, Method: r.Method}, from.bucket, from.name, header, content)
	if !ok {
		return
	}
	s.uploads.end(id)
	setState(w.Header(), made.Generation, made.Etag, made.Crc32c, made.Md5Hash)
	writeXML(w, completeResult{Bucket: from.bucket, Key: from.name, ETag: quoted(made.Etag)})
}

// choose gives the files of the parts asked for, or the code of what is wrong with them.
func (u *upload) choose(asked completeRequest) (paths []string, code string) {
	for i, wanted := range asked.Parts {
		if i > 0 && wanted.PartNumber <= asked.Parts[i-1].PartNumber {
			return nil, "InvalidPartOrder"
		}
	}
	for i, wanted := range asked.Parts {
		found, known := u.parts[wanted.PartNumber]
		if !known || strings.Trim(wanted.ETag, `"`) != strings.Trim(found.etag, `"`) {
			return nil, "InvalidPart"
		}
		if i < len(asked.Parts)-1 && found.size < minPartBytes {
			return nil, "EntityTooSmall"
		}
		paths = append(paths, found.path)
	}
	return paths, ""
}

func (s *server) listUploads(w http.ResponseWriter, bucket, prefix string) {
	result := uploadsResult{Bucket: bucket, Prefix: prefix}
	s.uploads.mutex.Lock()
	for id, u := range s.uploads.pending {
		if u.bucket == bucket && strings.HasPrefix(u.name, prefix) {
			result.Uploads = append(result.Uploads, pendingUpload{u.name, id, u.initiated.Format(xmlTime)})
		}
	}
	s.uploads.mutex.Unlock()
	sort.Slice(result.Uploads, func(i, j int) bool {
		a, b := result.Uploads[i], result.Uploads[j]
		return a.Key < b.Key || (a.Key == b.Key && a.Initiated < b.Initiated)
	})
	writeXML(w, result)
}

// files reads files one after the other, and has one open at a time.
type files struct {
	paths []string
	open  *os.File
}

func (f *files) Read(buffer []byte) (n int, err error) {
	for {
		if f.open == nil {
			if len(f.paths) == 0 {
				return 0, io.EOF
			}
			if f.open, err = os.Open(f.paths[0]); err != nil {
				return 0, err
			}
			f.paths = f.paths[1:]
		}
		if n, err = f.open.Read(buffer); err != io.EOF {
			return n, err
		}
		f.close()
	}
}

func (f *files) close() {
	if f.open != nil {
		f.open.Close()
		f.open = nil
	}
}
