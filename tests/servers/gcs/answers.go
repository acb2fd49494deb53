package main

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strings"
)

const xmlTime = "2006-01-02T15:04:05.000Z"

type xmlError struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

type copyResult struct {
	XMLName      xml.Name `xml:"CopyObjectResult"`
	ETag         string
	LastModified string
}

// Answers about multipart uploads have the namespace that Google gives them, and that its Python client looks for.
type initiateResult struct {
	XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
	Bucket   string
	Key      string
	UploadID string `xml:"UploadId"`
}

type completeRequest struct {
	Parts []struct {
		PartNumber int
		ETag       string
	} `xml:"Part"`
}

type completeResult struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
	Bucket  string
	Key     string
	ETag    string
}

type uploadsResult struct {
	XMLName     xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListMultipartUploadsResult"`
	Bucket      string
	Prefix      string
	IsTruncated bool
	Uploads     []pendingUpload `xml:"Upload"`
}

type pendingUpload struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated string
}

type listResult struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Name                  string
	Prefix                string
	Delimiter             string `xml:",omitempty"`
	KeyCount              int
	MaxKeys               int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listedObject
	CommonPrefixes        []listedPrefix
}

type listedObject struct {
	Key          string
	Generation   int64
	LastModified string
	ETag         string
	Size         int64
	StorageClass string
}

type listedPrefix struct{ Prefix string }

func writeXML(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.Write([]byte(xml.Header))
	xml.NewEncoder(w).Encode(answer)
}

// refuse answers with an error in the words of the API that was asked.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	if isJSON(r) || strings.HasPrefix(r.URL.Path, "/batch/") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		detail := map[string]string{"domain": "global", "reason": code, "message": message}
		json.NewEncoder(w).Encode(map[string]any{
			"error": map[string]any{"code": status, "message": message, "errors": []any{detail}},
		})
		return
	}
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write([]byte(xml.Header))
		xml.NewEncoder(w).Encode(xmlError{Code: code, Message: message})
	}
}

func refusePrecondition(w http.ResponseWriter, r *http.Request) {
	message := "At least one of the pre-conditions you specified did not hold."
	refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed", message)
}
