// Package backend: put in place of fake-gcs-server's own fs.go (see ../build.sh). The stock one lists a bucket by walking all of its
// files, cannot hold both "a" and "a/b", and shows new content under old attributes; the stock memory one compares every object on
// each request. This one keeps attributes in maps, names sorted, and contents in files that never change. Nothing outlives the process.
package backend

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/storage"
)

type bucketFS struct {
	Bucket
	names
}

type storageFS struct {
	rootDir    string
	mtx        sync.Mutex
	buckets    map[string]*bucketFS
	generation int64
	files      int64
}

// NewStorageFS creates the storage; rootDir is made, and holds contents only.
func NewStorageFS(objects []StreamingObject, rootDir string) (Storage, error) {
	if err := os.MkdirAll(rootDir, 0o700); err != nil {
		return nil, err
	}
	s := &storageFS{rootDir: rootDir, buckets: map[string]*bucketFS{}}
	for _, obj := range objects {
		if err := s.CreateBucket(obj.BucketName, BucketAttrs{}); err != nil {
			return nil, err
		}
		if _, err := s.CreateObject(obj, NoConditions{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *storageFS) CreateBucket(name string, attrs BucketAttrs) error {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	if attrs.VersioningEnabled {
		return fmt.Errorf("bucket %s: versions are not kept", name)
	}
	if s.buckets[name] == nil {
		bucket := Bucket{Name: name, TimeCreated: time.Now(), DefaultEventBasedHold: attrs.DefaultEventBasedHold, ACL: attrs.ACL}
		s.buckets[name] = &bucketFS{Bucket: bucket, names: names{objects: map[string]*entry{}}}
	}
	return nil
}

func (s *storageFS) ListBuckets() ([]Bucket, error) {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	buckets := make([]Bucket, 0, len(s.buckets))
	for _, bucket := range s.buckets {
		buckets = append(buckets, bucket.Bucket)
	}
	return buckets, nil
}

func (s *storageFS) GetBucket(name string) (Bucket, error) {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	if bucket := s.buckets[name]; bucket != nil {
		return bucket.Bucket, nil
	}
	return Bucket{}, BucketNotFound
}

func (s *storageFS) UpdateBucket(name string, attrs BucketAttrs) error {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[name]
	if bucket == nil {
		return BucketNotFound
	}
	bucket.DefaultEventBasedHold = attrs.DefaultEventBasedHold
	return nil
}

func (s *storageFS) UpdateBucketACL(name string, acl []storage.ACLRule) error {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[name]
	if bucket == nil {
		return BucketNotFound
	}
	bucket.ACL = acl
	return nil
}

func (s *storageFS) DeleteBucket(name string) error {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[name]
	if bucket == nil {
		return BucketNotFound
	}
	if len(bucket.objects) > 0 {
		return BucketNotEmpty
	}
	delete(s.buckets, name)
	return nil
}

// CreateObject reads the whole content before it takes the lock, so that a slow upload holds up nobody.
func (s *storageFS) CreateObject(obj StreamingObject, conditions Conditions) (StreamingObject, error) {
	made := &entry{ObjectAttrs: obj.ObjectAttrs}
	made.Name = strings.Clone(obj.Name) // else it keeps the request's whole text in memory
	if len(made.Metadata) == 0 {
		made.Metadata = nil
	}
	if err := s.store(made, obj.Content); err != nil {
		return StreamingObject{}, err
	}
	if made.StorageClass == "" {
		made.StorageClass = "STANDARD"
	}
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[obj.BucketName]
	if bucket == nil {
		made.drop(0)
		return StreamingObject{}, BucketNotFound
	}
	old := bucket.objects[obj.Name]
	current := int64(0)
	if old != nil {
		current = old.Generation
	}
	if !conditions.ConditionsMet(current) {
		made.drop(0)
		return StreamingObject{}, PreConditionFailed
	}
	// Generations are microseconds, as Google's are, and no two are the same.
	s.generation = max(s.generation+1, time.Now().UnixMicro())
	made.Generation = s.generation
	if old == nil {
		bucket.added = append(bucket.added, made.Name)
	} else {
		old.drop(removeAfter)
	}
	bucket.objects[made.Name] = made
	return made.streaming(), nil
}

func (s *storageFS) ListObjects(bucketName, prefix string, _ bool) ([]ObjectAttrs, error) {
	found, _, _, err := s.Page(bucketName, prefix, "", "", -1)
	if err != nil {
		return nil, err
	}
	s.mtx.Lock()
	defer s.mtx.Unlock()
	attrs := make([]ObjectAttrs, 0, len(found))
	for _, name := range found {
		if object := s.buckets[bucketName].objects[name]; object != nil {
			attrs = append(attrs, object.ObjectAttrs)
		}
	}
	return attrs, nil
}

func (s *storageFS) GetObject(bucketName, objectName string) (StreamingObject, error) {
	return s.GetObjectWithGeneration(bucketName, objectName, 0)
}

// GetObjectWithGeneration gets the only version there is; 0 asks for any.
func (s *storageFS) GetObjectWithGeneration(bucketName, objectName string, generation int64) (StreamingObject, error) {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[bucketName]
	if bucket == nil {
		return StreamingObject{}, BucketNotFound
	}
	object := bucket.objects[objectName]
	if object == nil || (generation != 0 && object.Generation != generation) {
		return StreamingObject{}, fmt.Errorf("no object %s in %s", objectName, bucketName)
	}
	return object.streaming(), nil
}

func (s *storageFS) DeleteObject(bucketName, objectName string) error {
	return s.DeleteObjectWithGeneration(bucketName, objectName, 0)
}

func (s *storageFS) DeleteObjectWithGeneration(bucketName, objectName string, generation int64) error {
	if _, err := s.GetObjectWithGeneration(bucketName, objectName, generation); err != nil {
		return err
	}
	s.mtx.Lock()
	defer s.mtx.Unlock()
	bucket := s.buckets[bucketName]
	if object := bucket.objects[objectName]; object != nil {
		object.drop(removeAfter)
		delete(bucket.objects, objectName)
		bucket.removed++
	}
	return nil
}

func (s *storageFS) PatchObject(bucketName, objectName string, attrs ObjectAttrs) (StreamingObject, error) {
	obj, err := s.GetObject(bucketName, objectName)
	if err != nil {
		return StreamingObject{}, err
	}
	obj.Metadata = maps.Clone(obj.Metadata) // patch changes it in place
	obj.patch(attrs)
	return s.CreateObject(obj, NoConditions{})
}

func (s *storageFS) UpdateObject(bucketName, objectName string, attrs ObjectAttrs) (StreamingObject, error) {
	obj, err := s.GetObject(bucketName, objectName)
	if err != nil {
		return StreamingObject{}, err
	}
	if attrs.Metadata != nil {
		obj.Metadata = nil
	}
	obj.patch(attrs)
	return s.CreateObject(obj, NoConditions{})
}

func (s *storageFS) DeleteAllFiles() error {
	s.mtx.Lock()
	defer s.mtx.Unlock()
	for _, bucket := range s.buckets {
		for _, object := range bucket.objects {
			object.drop(0)
		}
	}
	s.buckets = map[string]*bucketFS{}
	return nil
}
