// Package sqlserver keeps the outbox in SQL Server.
package sqlserver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/gorm-fanout/fanout/outbox"
)

// Store is the outbox table of one SQL Server database.
type Store struct {
	db    *sql.DB
	table string
}

var _ outbox.FullStore = (*Store)(nil)

// New makes a store on a database that stays the caller's to close. An empty table means outbox.DefaultTable.
func New(db *sql.DB, table string) (*Store, error) {
	if table == "" {
		table = outbox.DefaultTable
	}
	if err := outbox.CheckTable(table); err != nil {
		return nil, err
	}
	return &Store{db: db, table: table}, nil
}

var errTODO = errors.New("sqlserver: being written")

func (s *Store) Exchange(context.Context, *outbox.Settlement, *outbox.Claim) (outbox.Exchanged, error) {
	return outbox.Exchanged{}, errTODO
}
func (s *Store) Renew(context.Context, outbox.Lease) (int, error)           { return 0, errTODO }
func (s *Store) Ready(context.Context, string) ([]int, error)               { return nil, errTODO }
func (s *Store) Lanes() int                                                 { return outbox.Lanes }
func (s *Store) Close() error                                               { return nil }
func (s *Store) FinishedBrokers(context.Context) ([]string, error)          { return nil, errTODO }
func (s *Store) Purge(context.Context, outbox.PurgeRequest) (int, error)    { return 0, errTODO }
func (s *Store) Exclusive(context.Context, string, func(context.Context) error) (bool, error) {
	return false, errTODO
}
func (s *Store) Counts(context.Context) ([]outbox.BrokerCounts, error) { return nil, errTODO }
func (s *Store) Migrate(context.Context) ([]string, error)             { return nil, errTODO }
func (s *Store) Check(context.Context) error                           { return errTODO }
func (s *Store) Dialect() outbox.Dialect                               { return outbox.SQLServer }
