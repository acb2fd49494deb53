// A GCS server for tests: fake-gcs-server's JSON API, and around it what obstore's client needs besides: Google's XML API with simple
// and multipart uploads, copies, ranges and paged listings; batches of requests without a Content-ID, as Google's Python client sends
// them; and a bearer token that is asked for.
package main

import (
	"crypto/subtle"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type server struct {
	stored  *fakestorage.Server
	inner   http.Handler
	pages   pager
	uploads uploads
	token   string
	deny    bool
}

func main() {
	port := flag.Int("port", 0, "the port to listen on, on the loopback interface; 0 lets the system choose")
	folder := flag.String("folder", "", "where contents are kept; nothing there is read when the server starts")
	token := flag.String("token", "", "the bearer token every request must bring; none is asked for without it")
	deny := flag.Bool("deny", false, "refuse requests for objects whose name contains denied/, uploads by the JSON API apart")
	flag.Parse()
	if *folder == "" {
		log.Fatal("gcs-server: --folder is needed")
	}
	debug.SetGCPercent(40) // a slower server in less memory
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatalf("gcs-server: %v", err)
	}
	handler, err := newServer(*folder, "http://"+listener.Addr().String(), *token, *deny)
	if err != nil {
		log.Fatalf("gcs-server: %v", err)
	}
	log.Printf("gcs-server: listening on %s", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}

func newServer(folder, endpoint, token string, deny bool) (*server, error) {
	stored, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		StorageRoot: filepath.Join(folder, "contents"), NoListener: true, Scheme: "http", ExternalURL: endpoint,
	})
	if err != nil {
		return nil, err
	}
	pages, ok := stored.Backend().(pager)
	if !ok {
		return nil, fmt.Errorf("fake-gcs-server was built with its own storage: use tests/servers/build.sh")
	}
	s := &server{stored: stored, inner: stored.HTTPHandler(), pages: pages, token: token, deny: deny}
	s.uploads.folder = filepath.Join(folder, "parts")
	return s, nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	switch {
	case path == "/":
		w.WriteHeader(http.StatusOK)
	case path == "/token" && r.Method == http.MethodPost:
		// The token_uri of a service account's key file may be this: any assertion is taken.
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, s.token)
	case !s.allowed(r):
		refuse(w, r, http.StatusUnauthorized, "AuthenticationRequired", "Invalid Credentials")
	case path == "/batch/storage/v1":
		s.batch(w, r)
	case isJSON(r):
		s.json(w, r)
	default:
		s.xml(w, r)
	}
}

func (s *server) allowed(r *http.Request) bool {
	given := r.Header.Get("Authorization")
	return s.token == "" || subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+s.token)) == 1
}

func (s *server) denies(name string) bool {
	return s.deny && strings.Contains(name, "denied/")
}

func isJSON(r *http.Request) bool {
	for _, prefix := range []string{"/storage/v1/", "/upload/storage/v1/", "/upload/resumable/", "/download/storage/v1/"} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return true
		}
	}
	return false
}

// xml serves /BUCKET and /BUCKET/NAME, where slashes of the name may be escaped.
func (s *server) xml(w http.ResponseWriter, r *http.Request) {
	escapedBucket, escapedName, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	bucket, bucketErr := url.PathUnescape(escapedBucket)
	name, nameErr := url.PathUnescape(escapedName)
	if bucketErr != nil || nameErr != nil {
		refuse(w, r, http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
		return
	}
	if _, err := s.stored.Backend().GetBucket(bucket); err != nil {
		refuse(w, r, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
		return
	}
	query := r.URL.Query()
	switch {
	case name == "" && r.Method == http.MethodGet && query.Has("uploads"):
		s.listUploads(w, bucket, query.Get("prefix"))
	case name == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.xmlList(w, r, bucket)
	case name == "":
		refuse(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed", "Buckets are made by the JSON API.")
	case s.denies(name):
		refuse(w, r, http.StatusForbidden, "AccessDenied", "Access denied.")
	case query.Has("uploads") || query.Has("uploadId"):
		s.multipart(w, r, bucket, name)
	default:
		s.object(w, r, bucket, name)
	}
}
