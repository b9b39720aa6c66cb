package worker

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// forgetEvery is the number of commits between two whose answers are lost.
const forgetEvery = 50

// openForgetful opens a pool whose connections sometimes break right after a COMMIT was sent: the
// moment that proxies, which know nothing of transactions, hit too rarely.
func openForgetful(dsn string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	dial, commits := cfg.DialFunc, new(atomic.Int64)
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &forgetful{conn, commits}, nil
	}
	return stdlib.OpenDB(*cfg), nil
}

// forgetful is one of its connections.
type forgetful struct {
	net.Conn

	commits *atomic.Int64 // of all connections
}

// Write sends, and closes the connection after some commits.
func (f *forgetful) Write(data []byte) (int, error) {
	n, err := f.Conn.Write(data)
	if err == nil && bytes.HasSuffix(data, []byte("commit\x00")) && f.commits.Add(1)%forgetEvery == 0 {
		err = f.Close()
	}
	return n, err
}
