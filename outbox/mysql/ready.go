package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
)

// Ready implements driver.Delivery.
func (s *Store) Ready(ctx context.Context, broker string, busy wakeup.Set) (ready driver.Readiness, err error) {
	began := time.Now()
	marks := s.water.marks(broker, classShards, began)
	err = retry(ctx, func() error {
		shards, stale, err := s.ready(ctx, s.db, broker, busy, marks)
		if err == nil && len(stale) > 0 {
			shards, err = s.readyAgain(ctx, broker, busy, marks, stale)
		}
		if len(shards) > 0 && shards[0] == driver.PausedShard {
			shards = shards[:1]
		}
		ready = driver.NewReadiness(shards)
		return err
	})
	if err != nil {
		return driver.Readiness{}, fmt.Errorf("mysql: look for ready rows in %s: %w", s.table, explain(err))
	}
	s.water.looked(broker, marks, ready.Shards, began, time.Now())
	s.makeMarks(ctx, broker, allShards()...)
	return ready, nil
}

// classShards is how many shards there are, of all classes.
const classShards = outbox.Classes * outbox.Shards

func allShards() []int {
	shards := make([]int, classShards)
	for shard := range shards {
		shards[shard] = shard
	}
	return shards
}

// ready looks which shards have work, by their marks. Those that are stale have marks that do not hold.
func (s *Store) ready(ctx context.Context, on conn, broker string, busy wakeup.Set, marks []waterMark) (shards, stale []int, err error) {
	given, st := args{"broker": broker, "busy": int64(busy), "server": ""}, s.statements["ready"]
	if !slices.ContainsFunc(marks, func(m waterMark) bool { return m.floor > 0 }) {
		st = s.statements["ready_unmarked"]
	}
	for shard, m := range marks {
		floor, version := "floor_"+strconv.Itoa(shard), "version_"+strconv.Itoa(shard)
		given[floor], given[version] = m.from(), int64(-1)
		if m.floor > 0 {
			given[version], given["server"] = m.version, m.server
		}
		st.text = withList(st.text, "list_"+strconv.Itoa(shard), lateList(m.late))
	}
	err = queryText(ctx, on, st, given, func(scan scanner) error {
		var (
			shard int
			valid bool
		)
		err := scan(&shard, &valid)
		if shards = append(shards, shard); !valid {
			stale = append(stale, shard)
		}
		return err
	})
	return shards, stale, err
}

// readyAgain looks again: in a session that is of the marks' server now where it was not known to be
// before, and without marks that do not hold.
func (s *Store) readyAgain(ctx context.Context, broker string, busy wakeup.Set, marks []waterMark, stale []int) (shards []int, err error) {
	err = s.onSession(ctx, s.db, func(conn *sql.Conn) error {
		_, same, err := s.recognize(ctx, conn)
		if err == nil && same {
			shards, stale, err = s.ready(ctx, conn, broker, busy, marks)
		}
		if err != nil || same && len(stale) == 0 {
			return err
		}
		for _, shard := range stale {
			s.water.forget(broker, shard, marks[shard].version)
			marks[shard] = waterMark{}
		}
		if !same {
			clear(marks)
		}
		shards, _, err = s.ready(ctx, conn, broker, busy, marks)
		return err
	})
	return shards, err
}
