package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
)

const maxPage = 1000

// pager is what _backend/fs.go has besides fake-gcs-server's interface of a storage.
type pager interface {
	Page(bucket, prefix, delimiter, from string, limit int) (names, prefixes []string, next string, err error)
}

// A page's token names where the page begins. It is opaque to clients, as Google's is.
func pageToken(next string) string {
	return base64.URLEncoding.EncodeToString([]byte(next))
}

// start of a listing: where its token says, else the first name that is not below from.
func start(token, from string) (string, error) {
	if token == "" {
		return from, nil
	}
	name, err := base64.URLEncoding.DecodeString(token)
	return string(name), err
}

// pageSize is what was asked for, up to Google's own limit.
func pageSize(asked string) (int, error) {
	if asked == "" {
		return maxPage, nil
	}
	size, err := strconv.Atoi(asked)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("the size of a page, %q, is not a positive number", asked)
	}
	return min(size, maxPage), nil
}

func (s *server) xmlList(w http.ResponseWriter, r *http.Request, bucket string) {
	query := r.URL.Query()
	from := ""
	if after := query.Get("start-after"); after != "" {
		from = after + "\x00" // the lowest name above it
	}
	from, err := start(query.Get("continuation-token"), from)
	size, sizeErr := pageSize(query.Get("max-keys"))
	if err != nil || sizeErr != nil {
		refuse(w, r, http.StatusBadRequest, "InvalidArgument", "continuation-token or max-keys is wrong.")
		return
	}
	names, prefixes, next, err := s.pages.Page(bucket, query.Get("prefix"), query.Get("delimiter"), from, size)
	if err != nil {
		refuse(w, r, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
		return
	}
	result := listResult{
		Name: bucket, Prefix: query.Get("prefix"), Delimiter: query.Get("delimiter"), MaxKeys: size,
		KeyCount: len(names) + len(prefixes), ContinuationToken: query.Get("continuation-token"),
	}
	if next != "" {
		result.IsTruncated, result.NextContinuationToken = true, pageToken(next)
	}
	for _, prefix := range prefixes {
		result.CommonPrefixes = append(result.CommonPrefixes, listedPrefix{prefix})
	}
	for _, name := range names {
		obj, err := s.stored.GetObjectStreaming(bucket, name)
		if err != nil {
			continue // removed since the page was made
		}
		obj.Close()
		updated := obj.Updated.UTC().Format(xmlTime)
		result.Contents = append(result.Contents, listedObject{name, obj.Generation, updated, quoted(obj.Etag), obj.Size, obj.StorageClass})
	}
	writeXML(w, result)
}

func (s *server) jsonList(w http.ResponseWriter, r *http.Request, bucket string) {
	query := r.URL.Query()
	prefix, delimiter, end := query.Get("prefix"), query.Get("delimiter"), query.Get("endOffset")
	from, err := start(query.Get("pageToken"), query.Get("startOffset"))
	size, sizeErr := pageSize(query.Get("maxResults"))
	if err != nil || sizeErr != nil {
		refuse(w, r, http.StatusBadRequest, "invalid", "pageToken or maxResults is wrong.")
		return
	}
	names, prefixes, next, err := s.pages.Page(bucket, prefix, delimiter, from, size)
	if err != nil {
		refuse(w, r, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
		return
	}
	answer := map[string]any{"kind": "storage#objects", "prefixes": below(prefixes, end)}
	if next != "" && (end == "" || next < end) {
		answer["nextPageToken"] = pageToken(next)
	}
	items := []json.RawMessage{}
	for _, name := range below(names, end) {
		if item := s.describe(bucket, name); item != nil {
			items = append(items, item)
		}
	}
	answer["items"] = items
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

func below(names []string, end string) []string {
	kept := []string{}
	for _, name := range names {
		if end == "" || name < end {
			kept = append(kept, name)
		}
	}
	return kept
}

// describe gives fake-gcs-server's own description of an object; nil, if there is none.
func (s *server) describe(bucket, name string) json.RawMessage {
	answer := httptest.NewRecorder()
	target := "/storage/v1/b/" + url.PathEscape(bucket) + "/o/" + url.PathEscape(name)
	s.inner.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, target, nil))
	if answer.Code != http.StatusOK {
		return nil
	}
	return answer.Body.Bytes()
}
