package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
)

var (
	listPath   = regexp.MustCompile(`^/storage/v1/b/([^/]+)/o/?$`)
	objectPath = regexp.MustCompile(`^(?:/download)?/storage/v1/b/([^/]+)/o/(.+?)(?:/(?:rewriteTo|copyTo)/b/([^/]+)/o/(.+))?$`)
)

// json passes requests on to fake-gcs-server, apart from listings, which it pages by names alone.
func (s *server) json(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if match := listPath.FindStringSubmatch(path); match != nil && r.Method == http.MethodGet {
		s.jsonList(w, r, unescaped(match[1]))
		return
	}
	if match := objectPath.FindStringSubmatch(path); match != nil {
		if s.denies(unescaped(match[2])) || s.denies(unescaped(match[4])) {
			refuse(w, r, http.StatusForbidden, "forbidden", "Access denied.")
			return
		}
		bucket, name := match[1], match[2]
		if match[4] != "" {
			bucket, name = match[3], match[4]
		}
		if !s.meets(r.URL.Query().Get("ifGenerationMatch"), unescaped(bucket), unescaped(name)) {
			refusePrecondition(w, r)
			return
		}
	}
	answer := &mended{ResponseWriter: w}
	if r.URL.Query().Get("uploadType") == "media" {
		checked := newChecked(r.Body, r.Header)
		answer.checked = checked
		r.Body = struct {
			io.Reader
			io.Closer
		}{checked, r.Body}
	}
	s.inner.ServeHTTP(answer, r)
}

// meets tells whether the object has that generation. fake-gcs-server looks at it for uploads only. A write at the same moment can
// come between; uploads are safe from that.
func (s *server) meets(generation, bucket, name string) bool {
	if generation == "" {
		return true
	}
	obj, err := s.stored.GetObjectStreaming(bucket, name)
	if err != nil {
		return generation == "0"
	}
	obj.Close()
	return generation == fmt.Sprint(obj.Generation)
}

func unescaped(part string) string {
	name, err := url.PathUnescape(part)
	if err != nil {
		return part
	}
	return name
}

// mended is an answer of fake-gcs-server's with two mistakes put right: objects put together from parts have no MD5, not an empty
// one, and a content that does not agree with its checksum is the client's error.
type mended struct {
	http.ResponseWriter
	checked *checked
}

func (m *mended) WriteHeader(status int) {
	if value := m.Header().Get("X-Goog-Hash"); strings.HasSuffix(value, ",md5=") {
		m.Header().Set("X-Goog-Hash", strings.TrimSuffix(value, ",md5="))
	}
	if m.checked != nil && m.checked.wrong != "" {
		status = http.StatusBadRequest
	}
	m.ResponseWriter.WriteHeader(status)
}

// batch serves requests that are the parts of one. fake-gcs-server drops those without a Content-ID.
func (s *server) batch(w http.ResponseWriter, r *http.Request) {
	reader, err := r.MultipartReader()
	if err != nil {
		refuse(w, r, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	var answer bytes.Buffer
	parts := multipart.NewWriter(&answer)
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = s.batchPart(part, parts, r.Header.Get("Authorization"))
		}
		if err != nil {
			refuse(w, r, http.StatusBadRequest, "invalid", err.Error())
			return
		}
	}
	parts.Close()
	w.Header().Set("Content-Type", "multipart/mixed; boundary="+parts.Boundary())
	w.Write(answer.Bytes())
}

func (s *server) batchPart(part *multipart.Part, to *multipart.Writer, authorization string) error {
	content, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(append(content, "\r\n\r\n"...))))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", authorization)
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	header := textproto.MIMEHeader{"Content-Type": {"application/http"}}
	if id := part.Header.Get("Content-ID"); id != "" {
		header.Set("Content-ID", strings.Replace(id, "<", "<response-", 1))
	}
	dump, err := httputil.DumpResponse(recorder.Result(), true)
	if err != nil {
		return err
	}
	writer, err := to.CreatePart(header)
	if err != nil {
		return err
	}
	_, err = writer.Write(dump)
	return err
}
