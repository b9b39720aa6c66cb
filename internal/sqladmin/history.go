package sqladmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/internal/purge"
)

// A day of the history that has ended.
type day struct {
	name    string // as the server writes a date
	ended   time.Duration
	brokers []string
}

// PurgeHistory makes the partitions of the days ahead, and removes what is old of a history that is
// kept by the day. A day goes when it has ended for as long as the retention of each broker that has
// rows there; while one has longer, the rows of the others are removed, limit at a time, and between
// two batches pause is called. It returns how many rows went, also where it failed on the way; where
// there is no history, none.
func (a *Admin) PurgeHistory(ctx context.Context, retention func(broker string) time.Duration, limit int, pause func() error) (removed int, err error) {
	if !a.dialect.History {
		return 0, nil
	}
	var problems []error // one keeps nothing of the other
	note := func(err error, doing string) {
		if err != nil {
			problems = append(problems, a.failed(err, doing+" of the history of %s", a.table))
		}
	}
	_, err = a.history(ctx, "history_make", nil)
	note(err, "make the days ahead")
	days, err := a.days(ctx)
	note(err, "look for the days")
	for i := range days {
		if ctx.Err() != nil {
			break
		}
		note(a.purgeDay(ctx, &days[i], retention, limit, pause, &removed), "purge "+days[i].name)
	}
	note(a.dropDays(ctx), "drop what was detached") // also by a process that died
	return removed, errors.Join(problems...)
}

// dropDays drops what was detached.
func (a *Admin) dropDays(ctx context.Context) error {
	var problems string
	err := a.write(ctx, Plain, func(ctx context.Context, conn Conn) error {
		return a.query(ctx, conn, "history_drop", nil, func(scan scanner) error { return scan(&problems) })
	})
	if err == nil && problems != "" {
		err = errors.New(problems)
	}
	return err
}

// history runs a statement that is a transaction of its own and answers with a number.
func (a *Admin) history(ctx context.Context, statement string, given args) (n int64, err error) {
	err = a.write(ctx, Plain, func(ctx context.Context, conn Conn) (err error) {
		n, err = a.number(ctx, conn, statement, given)
		return err
	})
	return n, err
}

func (a *Admin) days(ctx context.Context) (days []day, err error) {
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		days = nil
		return a.query(ctx, conn, "history_days", args{"most": a.mostNames()}, func(scan scanner) error {
			var (
				d      day
				micros int64
				broker string
			)
			if err := scan(&d.name, &micros, &broker); err != nil {
				return err
			}
			d.ended = time.Duration(micros) * time.Microsecond
			if n := len(days); n == 0 || days[n-1].name != d.name {
				days = append(days, d)
			}
			if broker != "" {
				last := &days[len(days)-1]
				last.brokers = append(last.brokers, broker)
			}
			return nil
		})
	})
	return days, err
}

func (a *Admin) purgeDay(ctx context.Context, d *day, retention func(string) time.Duration, limit int, pause func() error, removed *int) error {
	var old []string
	for _, broker := range d.brokers {
		if d.ended >= retention(broker) {
			old = append(old, broker)
		}
	}
	empty := len(d.brokers) == 0 && d.ended >= retention("")
	// Where there are as many names as are looked for, it is not known whose the other rows are.
	if empty || len(old) > 0 && len(old) == len(d.brokers) && int64(len(old)) < a.mostNames() {
		return a.removeDay(ctx, d, removed)
	}
	for _, broker := range old {
		err := purge.Batches(removed, limit, func() (int, error) {
			var n int64
			err := a.write(ctx, Purge, func(ctx context.Context, conn Conn) (err error) {
				n, err = a.exec(ctx, conn, "purge_history", args{"broker": broker, "day": d.name, "limit": int64(limit)})
				return err
			})
			return int(n), err
		}, pause)
		if err != nil {
			return err
		}
	}
	return nil
}

// removeDay takes a day out of the history. Its rows are counted before, so that no completion waits for that;
// one that is replayed in between counts, too. Where they cannot be counted, say in the time that a role has,
// the day goes all the same.
func (a *Admin) removeDay(ctx context.Context, d *day, removed *int) error {
	given := args{"day": d.name}
	var rows int64
	uncounted := a.read(ctx, Count, func(ctx context.Context, conn Conn) (err error) {
		rows, err = a.number(ctx, conn, "history_rows", given)
		return err
	})
	if uncounted != nil {
		rows = 0
		uncounted = fmt.Errorf("count what goes: %w", uncounted)
	}
	gone, err := a.history(ctx, "history_detach", given)
	if gone == 1 {
		*removed += int(rows)
	}
	return errors.Join(uncounted, err)
}
