package backend

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/internal/checksum"
)

const (
	inlineBytes = 4096             // contents up to this size stay in memory
	removeAfter = 60 * time.Second // a replaced content, for those who still read it
	// compositeKey marks the metadata of an object put together from parts: like Google's, it has no MD5.
	compositeKey = "put-together-from-parts"
)

type entry struct {
	ObjectAttrs
	inline []byte
	path   string // of the content, unless it is inline
}

// store reads the content into the entry or a file of its own, and sets size, checksums and etag.
func (s *storageFS) store(made *entry, content io.Reader) error {
	hasher := checksum.NewStreamingHasher()
	reader := io.TeeReader(content, hasher)
	head, err := io.ReadAll(io.LimitReader(reader, inlineBytes+1))
	if err != nil {
		return err
	}
	made.Size = int64(len(head))
	if len(head) <= inlineBytes {
		made.inline = bytes.Clone(head)
	} else if err := s.storeFile(made, head, reader); err != nil {
		return err
	}
	made.Crc32c, made.Md5Hash = hasher.EncodedCrc32cChecksum(), hasher.EncodedMd5Hash()
	sum, err := base64.StdEncoding.DecodeString(made.Md5Hash)
	if err != nil {
		return err
	}
	made.Etag = hex.EncodeToString(sum) // as Google's XML interface has it
	if _, composite := made.Metadata[compositeKey]; composite {
		delete(made.Metadata, compositeKey)
		made.Etag, made.Md5Hash = made.Crc32c+"-composite", ""
	}
	return nil
}

func (s *storageFS) storeFile(made *entry, head []byte, rest io.Reader) error {
	s.mtx.Lock()
	s.files++
	made.path = filepath.Join(s.rootDir, fmt.Sprintf("%d", s.files))
	s.mtx.Unlock()
	file, err := os.OpenFile(made.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	made.Size, err = io.Copy(file, io.MultiReader(bytes.NewReader(head), rest))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		made.drop(0)
	}
	return err
}

func (e *entry) drop(after time.Duration) {
	if e.path != "" {
		time.AfterFunc(after, func() { os.Remove(e.path) })
	}
}

func (e *entry) streaming() StreamingObject {
	if e.path == "" {
		return StreamingObject{e.ObjectAttrs, noopSeekCloser{bytes.NewReader(e.inline)}}
	}
	return StreamingObject{e.ObjectAttrs, newLazyReader(e.path)}
}

func (s *storageFS) ComposeObject(
	bucketName string, objectNames []string, destination string, metadata map[string]string, contentType, contentEncoding,
	contentDisposition, contentLanguage, cacheControl, storageClass string, acl []storage.ACLRule,
) (StreamingObject, error) {
	readers := make([]io.Reader, 0, len(objectNames))
	for _, name := range objectNames {
		obj, err := s.GetObject(bucketName, name)
		if err != nil {
			return StreamingObject{}, err
		}
		defer obj.Close()
		readers = append(readers, obj.Content)
	}
	marked := map[string]string{compositeKey: "yes"}
	for key, value := range metadata {
		marked[key] = value
	}
	now := time.Now().Format(timestampFormat)
	attrs := ObjectAttrs{
		BucketName: bucketName, Name: destination, ContentType: contentType, ContentEncoding: contentEncoding, Created: now, Updated: now,
		ContentDisposition: contentDisposition, ContentLanguage: contentLanguage, CacheControl: cacheControl, StorageClass: storageClass,
		ACL: acl, Metadata: marked,
	}
	content := struct {
		io.Reader
		io.Seeker
		io.Closer
	}{io.MultiReader(readers...), nil, nil}
	return s.CreateObject(StreamingObject{attrs, content}, NoConditions{})
}
