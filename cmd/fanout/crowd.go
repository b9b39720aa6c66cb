package main

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConnections is how many connections the monitor keeps open. Each takes a descriptor, of which the
// relay needs some for databases and brokers.
const maxConnections = 256

// crowd bounds the connections of a server: where there are too many, the one goes that has waited for
// a request longest, so that a probe, which asks at once, is always answered; or, where all have begun
// one, the one that began longest ago. It is safe for concurrent use.
type crowd struct {
	most int

	mu   sync.Mutex
	open map[net.Conn]visit
}

// visit is what a connection does, and since when.
type visit struct {
	asks  bool // it has begun a request
	since time.Time
}

// changed is for [http.Server.ConnState].
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open == nil {
			c.open = map[net.Conn]visit{}
		}
		c.open[conn] = visit{since: time.Now()}
		if len(c.open) > c.most {
			c.evict(conn)
		}
	case http.StateActive, http.StateIdle:
		c.open[conn] = visit{state == http.StateActive, time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// evict closes a connection other than the one that has just come.
func (c *crowd) evict(latest net.Conn) {
	var goes net.Conn
	for conn, v := range c.open {
		if other := c.open[goes]; conn != latest && (goes == nil || !v.asks && other.asks || v.asks == other.asks && v.since.Before(other.since)) {
			goes = conn
		}
	}
	if goes != nil {
		delete(c.open, goes)
		_ = goes.Close() // it goes in any case
	}
}
