package worker

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// forgetEvery is the number of commits between two whose answers are lost.
const forgetEvery = 50

// openForgetful opens a pool whose connections sometimes break right after a COMMIT was sent: the
// moment that proxies, which know nothing of transactions, hit too rarely.
func openForgetful(database config.Database) (*sql.DB, error) {
	commits, dsn := new(atomic.Int64), database.DSN.Reveal()
	switch database.Driver {
	case outbox.MySQL:
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc, cfg.Logger = forgetfully(new(net.Dialer).DialContext, endsWith("\x03COMMIT"), commits).DialContext, &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	case outbox.SQLServer:
		connector, err := mssql.NewConnector(dsn)
		if err != nil {
			return nil, err
		}
		connector.Dialer = forgetfully(new(net.Dialer).DialContext, commitsTDS, commits)
		return sql.OpenDB(connector), nil
	default:
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = forgetfully(dialer(cfg.DialFunc), endsWith("commit\x00"), commits).DialContext
		return stdlib.OpenDB(*cfg), nil
	}
}

// endsWith recognizes the request to commit by the end of its text.
func endsWith(text string) func([]byte) bool {
	return func(data []byte) bool { return bytes.HasSuffix(data, []byte(text)) }
}

// commitsTDS recognizes the request to commit among those of the protocol of SQL Server: behind the
// 8 bytes of its header (the first is 14: it is about a transaction), and behind further headers, of
// which the first four bytes are the length, is the kind of the request, 7. ([MS-TDS], 2.2.6.9.)
func commitsTDS(data []byte) bool {
	const header, transaction, commit = 8, 14, 7
	if len(data) < header+4 || data[0] != transaction {
		return false
	}
	at := header + int(binary.LittleEndian.Uint32(data[header:]))
	return len(data) >= at+2 && binary.LittleEndian.Uint16(data[at:]) == commit
}

// dialer connects to a server.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// DialContext implements the interface that SQL Server's driver has for it.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// forgetfully dials connections that break after some commits, which are recognized in what is sent.
func forgetfully(dial dialer, commit func([]byte) bool, commits *atomic.Int64) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &forgetful{conn, commit, commits}, nil
	}
}

// forgetful is one of its connections.
type forgetful struct {
	net.Conn

	commit  func(sent []byte) bool
	commits *atomic.Int64 // of all connections
}

// Write sends, and closes the connection after some commits.
func (f *forgetful) Write(data []byte) (int, error) {
	n, err := f.Conn.Write(data)
	if err == nil && f.commit(data) && f.commits.Add(1)%forgetEvery == 0 {
		err = f.Close()
	}
	return n, err
}
