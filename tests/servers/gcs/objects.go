package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// object serves the XML API's requests for one object.
func (s *server) object(w http.ResponseWriter, r *http.Request, bucket, name string) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.get(w, r, bucket, name)
	case http.MethodPut:
		s.put(w, r, bucket, name)
	case http.MethodDelete:
		s.remove(w, r, bucket, name)
	default:
		refuse(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed.")
	}
}

func (s *server) get(w http.ResponseWriter, r *http.Request, bucket, name string) {
	obj, err := s.find(bucket, name, r.URL.Query().Get("generation"))
	if err != nil {
		refuse(w, r, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	defer obj.Close()
	if wanted := r.Header.Get("x-goog-if-generation-match"); wanted != "" && wanted != fmt.Sprint(obj.Generation) {
		refusePrecondition(w, r)
		return
	}
	header := w.Header()
	setIfNotEmpty(header, "Content-Type", obj.ContentType)
	setIfNotEmpty(header, "Cache-Control", obj.CacheControl)
	setIfNotEmpty(header, "Content-Encoding", obj.ContentEncoding)
	setIfNotEmpty(header, "Content-Disposition", obj.ContentDisposition)
	setIfNotEmpty(header, "Content-Language", obj.ContentLanguage)
	for key, value := range obj.Metadata {
		header.Set("x-goog-meta-"+key, value)
	}
	header.Set("x-goog-metageneration", "1")
	header.Set("x-goog-stored-content-encoding", "identity")
	header.Set("x-goog-stored-content-length", strconv.FormatInt(obj.Size, 10))
	setState(header, obj.Generation, obj.Etag, obj.Crc32c, obj.Md5Hash)
	http.ServeContent(w, r, "", obj.Updated, obj.Content)
}

func (s *server) find(bucket, name, generation string) (fakestorage.StreamingObject, error) {
	if generation == "" {
		return s.stored.GetObjectStreaming(bucket, name)
	}
	number, err := strconv.ParseInt(generation, 10, 64)
	if err != nil {
		return fakestorage.StreamingObject{}, err
	}
	return s.stored.GetObjectWithGenerationStreaming(bucket, name, number)
}

// put is a simple upload, or a copy where x-goog-copy-source names BUCKET/NAME.
func (s *server) put(w http.ResponseWriter, r *http.Request, bucket, name string) {
	content, header := io.Reader(r.Body), r.Header
	source := r.Header.Get("x-goog-copy-source")
	if source != "" {
		fromBucket, fromName, err := splitSource(source)
		if err != nil {
			refuse(w, r, http.StatusBadRequest, "InvalidArgument", err.Error())
			return
		}
		obj, err := s.stored.GetObjectStreaming(fromBucket, fromName)
		if err != nil {
			refuse(w, r, http.StatusNotFound, "NoSuchKey", "The source of the copy does not exist.")
			return
		}
		defer obj.Close()
		content, header = obj.Content, http.Header{"Content-Type": {obj.ContentType}}
	}
	made, ok := s.create(w, r, bucket, name, header, content)
	if !ok {
		return
	}
	setState(w.Header(), made.Generation, made.Etag, made.Crc32c, made.Md5Hash)
	if source != "" {
		writeXML(w, copyResult{ETag: quoted(made.Etag), LastModified: made.Updated})
	}
}

func splitSource(source string) (bucket, name string, err error) {
	escapedBucket, escapedName, found := strings.Cut(strings.TrimPrefix(source, "/"), "/")
	if !found {
		return "", "", errors.New("x-goog-copy-source is not BUCKET/NAME")
	}
	if bucket, err = url.PathUnescape(escapedBucket); err == nil {
		name, err = url.PathUnescape(escapedName)
	}
	return bucket, name, err
}

// made is what fake-gcs-server says of an object.
type made struct {
	Name       string
	Generation int64 `json:",string"`
	Etag       string
	Crc32c     string
	Md5Hash    string
	Updated    string
}

// create makes an object by an upload of the JSON API, which checks the condition and publishes at once; r's headers give the
// condition and the checksums to hold to. It answers the request itself where it fails.
func (s *server) create(
	w http.ResponseWriter, r *http.Request, bucket, name string, header http.Header, content io.Reader,
) (object made, ok bool) {
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	setIfNotEmptyQuery(query, "ifGenerationMatch", r.Header.Get("x-goog-if-generation-match"))
	setIfNotEmptyQuery(query, "contentEncoding", header.Get("Content-Encoding"))
	checked := newChecked(content, r.Header)
	target := "/upload/storage/v1/b/" + url.PathEscape(bucket) + "/o?" + query.Encode()
	request := httptest.NewRequest(http.MethodPost, target, checked).WithContext(r.Context())
	for key, values := range header {
		lower := strings.ToLower(key)
		if strings.HasPrefix(lower, "x-goog-meta-") || lower == "content-type" || lower == "cache-control" {
			request.Header[key] = values
		}
	}
	answer := httptest.NewRecorder()
	s.inner.ServeHTTP(answer, request)
	switch {
	case checked.wrong != "":
		refuse(w, r, http.StatusBadRequest, "BadDigest", checked.wrong)
	case answer.Code == http.StatusPreconditionFailed:
		refusePrecondition(w, r)
	case answer.Code != http.StatusOK:
		refuse(w, r, answer.Code, "InternalError", answer.Body.String())
	case json.Unmarshal(answer.Body.Bytes(), &object) != nil:
		refuse(w, r, http.StatusInternalServerError, "InternalError", "fake-gcs-server's answer is not understood")
	default:
		return object, true
	}
	return object, false
}

func (s *server) remove(w http.ResponseWriter, r *http.Request, bucket, name string) {
	obj, err := s.find(bucket, name, "")
	if err == nil {
		obj.Close()
		if wanted := r.Header.Get("x-goog-if-generation-match"); wanted != "" && wanted != fmt.Sprint(obj.Generation) {
			refusePrecondition(w, r)
			return
		}
		err = s.stored.Backend().DeleteObject(bucket, name)
	}
	if err != nil {
		refuse(w, r, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func setState(header http.Header, generation int64, etag, crc32c, md5 string) {
	header.Set("ETag", quoted(etag))
	header.Set("x-goog-generation", strconv.FormatInt(generation, 10))
	header.Set("x-goog-hash", "crc32c="+crc32c)
	if md5 != "" {
		header.Add("x-goog-hash", "md5="+md5)
	}
}

func setIfNotEmpty(header http.Header, key, value string) {
	if value != "" {
		header.Set(key, value)
	}
}

func setIfNotEmptyQuery(query url.Values, key, value string) {
	if value != "" {
		query.Set(key, value)
	}
}

func quoted(etag string) string { return `"` + etag + `"` }
