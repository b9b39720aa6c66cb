package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Holder implements driver.Delivery. A session that is silent, the server ends by itself (wait_timeout).
func (s *Store) Holder(ctx context.Context, _ string, _ int) (holder driver.Holder, err error) {
	err = s.query(ctx, s.db, "holder", args{"seconds": int(s.heldLong / time.Second)}, func(scan scanner) error { return scan(&holder.Session) })
	switch {
	case numbered(err, 1227): // the right is missing
		return driver.Holder{Session: "unknown: the role has no right PROCESS; look into information_schema.innodb_trx"}, nil
	case notUTF8(err):
		return driver.Holder{Session: "unknown: the server cannot list its transactions while a session runs a statement with bytes that are no UTF-8"}, nil
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	}
	if err != nil {
		return driver.Holder{}, fmt.Errorf("mysql: look who has a shard of %s: %w", s.table, explain(err))
	}
	return holder, nil
}
