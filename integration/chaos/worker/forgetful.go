package worker

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// forgetEvery is the number of commits between two whose answers are lost.
const forgetEvery = 50

// openForgetful opens a pool whose connections sometimes break right after a COMMIT was sent: the
// moment that proxies, which know nothing of transactions, hit too rarely.
func openForgetful(database config.Database) (*sql.DB, error) {
	commits, dsn := new(atomic.Int64), database.DSN.Reveal()
	if database.Driver == outbox.MySQL {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc, cfg.Logger = forgetfully(new(net.Dialer).DialContext, "\x03COMMIT", commits), &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = forgetfully(cfg.DialFunc, "commit\x00", commits)
	return stdlib.OpenDB(*cfg), nil
}

// dialer connects to a server.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// forgetfully dials connections that break after some commits, which end with the text in the
// database's protocol.
func forgetfully(dial dialer, commit string, commits *atomic.Int64) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &forgetful{conn, []byte(commit), commits}, nil
	}
}

// forgetful is one of its connections.
type forgetful struct {
	net.Conn

	commit  []byte
	commits *atomic.Int64 // of all connections
}

// Write sends, and closes the connection after some commits.
func (f *forgetful) Write(data []byte) (int, error) {
	n, err := f.Conn.Write(data)
	if err == nil && bytes.HasSuffix(data, f.commit) && f.commits.Add(1)%forgetEvery == 0 {
		err = f.Close()
	}
	return n, err
}
