package backend

import (
	"slices"
	"sort"
	"strings"
)

type names struct {
	objects map[string]*entry
	sorted  []string // all names of objects, after merge; never changed in place
	added   []string // names not yet in sorted
	removed int      // names in sorted that may be in objects no more
}

// merge gives the sorted names of all objects.
func (n *names) merge() []string {
	if len(n.added) == 0 && n.removed == 0 {
		return n.sorted
	}
	slices.Sort(n.added)
	all := make([]string, 0, len(n.objects))
	left, right := n.sorted, n.added
	for len(left)+len(right) > 0 {
		var next string
		if len(right) == 0 || (len(left) > 0 && left[0] <= right[0]) {
			next, left = left[0], left[1:]
		} else {
			next, right = right[0], right[1:]
		}
		if n.objects[next] != nil && (len(all) == 0 || all[len(all)-1] != next) {
			all = append(all, next)
		}
	}
	n.sorted, n.added, n.removed = all, nil, 0
	return all
}

// Page lists names that begin with prefix, are not below from, and hold no delimiter after the prefix, and the prefixes up to that
// delimiter of those that do: limit of both together. next is where the next page begins, "" after the last.
func (s *storageFS) Page(bucketName, prefix, delimiter, from string, limit int) (found, prefixes []string, next string, err error) {
	s.mtx.Lock()
	bucket := s.buckets[bucketName]
	if bucket == nil {
		s.mtx.Unlock()
		return nil, nil, "", BucketNotFound
	}
	keys := bucket.merge()
	s.mtx.Unlock()
	for i := sort.SearchStrings(keys, max(prefix, from)); i < len(keys) && strings.HasPrefix(keys[i], prefix); {
		if len(found)+len(prefixes) == limit {
			return found, prefixes, keys[i], nil
		}
		if at := strings.Index(keys[i][len(prefix):], delimiter); delimiter != "" && at >= 0 {
			group := keys[i][:len(prefix)+at+len(delimiter)]
			prefixes = append(prefixes, group)
			i += sort.Search(len(keys)-i, func(j int) bool { return !strings.HasPrefix(keys[i+j], group) })
			continue
		}
		found = append(found, keys[i])
		i++
	}
	return found, prefixes, "", nil
}
