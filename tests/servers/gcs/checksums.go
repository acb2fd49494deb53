package main

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
)

// checked is a content whose last read fails where it is not what the headers Content-MD5 and x-goog-hash say.
type checked struct {
	content io.Reader
	hashes  map[string]hash.Hash
	stated  map[string]string
	wrong   string // what does not agree, in words
}

func newChecked(content io.Reader, header http.Header) *checked {
	c := &checked{content: content, stated: map[string]string{}}
	c.hashes = map[string]hash.Hash{"md5": md5.New(), "crc32c": crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	if value := header.Get("Content-MD5"); value != "" {
		c.stated["md5"] = value
	}
	for _, pair := range strings.Split(strings.Join(header.Values("x-goog-hash"), ","), ",") {
		if kind, value, found := strings.Cut(strings.TrimSpace(pair), "="); found {
			c.stated[kind] = value
		}
	}
	return c
}

func (c *checked) Read(buffer []byte) (int, error) {
	n, err := c.content.Read(buffer)
	for _, sum := range c.hashes {
		sum.Write(buffer[:n])
	}
	if err == io.EOF {
		for kind, stated := range c.stated {
			if found := c.sum(kind); found != stated {
				c.wrong = fmt.Sprintf("The %s you specified (%s) did not match what we computed (%s).", kind, stated, found)
				return n, fmt.Errorf("%s", c.wrong)
			}
		}
	}
	return n, err
}

// sum is in base64; "" for a kind that is not known, which therefore never agrees.
func (c *checked) sum(kind string) string {
	if c.hashes[kind] == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(c.hashes[kind].Sum(nil))
}
