// A TCP proxy that is far away: what clients send is passed on --msec after it came, all connections at the same time, as over a long
// line; answers are passed on at once. So each request takes so much longer, and a large upload is no slower than its first byte is late.
// It prints its port on the first line. Answers are moved by the kernel (splice), so it takes little CPU beside what is measured.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"
)

const (
	pieceBytes = 64 << 10
	mostPieces = 512 // on the line at a time: 32 MB a connection, 1 GB/s at 30 ms
)

type piece struct {
	due  time.Time
	data []byte
}

var buffers = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

func main() {
	upstream := flag.String("upstream", "", "HOST:PORT of the server")
	msec := flag.Int("msec", 0, "how much later what clients send is passed on")
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatalf("latency-proxy: %v", err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatalf("latency-proxy: %v", err)
		}
		go serve(client.(*net.TCPConn), *upstream, time.Duration(*msec)*time.Millisecond)
	}
}

// serve passes on both ways until one side has gone, and then lets go of the other.
func serve(client *net.TCPConn, upstream string, latency time.Duration) {
	defer client.Close()
	connection, err := net.Dial("tcp", upstream)
	if err != nil {
		log.Printf("latency-proxy: %v", err)
		return
	}
	server := connection.(*net.TCPConn)
	defer server.Close()
	go func() {
		if latency > 0 {
			delay(server, client, latency)
		} else {
			io.Copy(server, client)
		}
		server.CloseWrite()
	}()
	io.Copy(client, server)
}

// delay copies until the source ends; each piece arrives `latency` after it was sent.
func delay(target io.Writer, source io.Reader, latency time.Duration) {
	line := make(chan piece, mostPieces)
	go func() {
		defer close(line)
		for {
			buffer := buffers.Get().(*[pieceBytes]byte)
			n, err := source.Read(buffer[:])
			if n > 0 {
				line <- piece{time.Now().Add(latency), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for next := range line {
		if !broken {
			time.Sleep(time.Until(next.due))
			_, err := target.Write(next.data)
			broken = err != nil // the rest is taken off the line, or the reader would wait for ever
		}
		buffers.Put((*[pieceBytes]byte)(next.data[:pieceBytes]))
	}
}
