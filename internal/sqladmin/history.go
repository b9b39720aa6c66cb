package sqladmin

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A day of the history that has ended.
type day struct {
	name    string // as the server writes a date
	ended   time.Duration
	brokers []string
}

// PurgeHistory makes the partitions of the days ahead, and removes what is old of a history that is
// kept by the day. A day goes when it has ended for as long as the retention of each broker that has
// rows there; while one has longer, or where more rows would go than the most that may (0: all), the
// rows of the others are removed, limit at a time, and between two batches pause is called. It returns
// how many rows went, also where it failed on the way; where there is no history, none.
func (a *Admin) PurgeHistory(ctx context.Context, retention func(broker string) time.Duration, limit, most int, pause func() error) (removed int, err error) {
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
	p := historyPurge{Admin: a, retention: retention, limit: limit, most: most, pause: pause}
	for i := range days {
		if ctx.Err() != nil || p.batch() == 0 {
			break
		}
		note(p.day(ctx, &days[i]), "purge "+days[i].name)
	}
	note(a.dropDays(ctx), "drop what was detached") // also by a process that died
	return p.removed, errors.Join(problems...)
}

// historyPurge is one purge of the history.
type historyPurge struct {
	*Admin

	retention   func(broker string) time.Duration
	limit, most int
	pause       func() error
	removed     int
}

// batch is how many rows may go next.
func (p *historyPurge) batch() int {
	if p.most == 0 {
		return p.limit
	}
	return max(0, min(p.limit, p.most-p.removed))
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

// day removes what is old of a day.
func (p *historyPurge) day(ctx context.Context, d *day) error {
	var old []string
	for _, broker := range d.brokers {
		if d.ended >= p.retention(broker) {
			old = append(old, broker)
		}
	}
	empty := len(d.brokers) == 0 && d.ended >= p.retention("")
	// Where there are as many names as are looked for, it is not known whose the other rows are.
	if empty || len(old) > 0 && len(old) == len(d.brokers) && int64(len(old)) < p.mostNames() {
		if removed, err := p.whole(ctx, d); removed || err != nil {
			return err
		}
	}
	for _, broker := range old {
		if err := p.rows(ctx, d, broker); err != nil {
			return err
		}
	}
	return nil
}

// rows removes those of a broker, batch by batch.
func (p *historyPurge) rows(ctx context.Context, d *day, broker string) error {
	for limit := p.batch(); limit > 0; limit = p.batch() {
		var n int64
		err := p.write(ctx, Purge, func(ctx context.Context, conn Conn) (err error) {
			n, err = p.exec(ctx, conn, "purge_history", args{"broker": broker, "day": d.name, "limit": int64(limit)})
			return err
		})
		p.removed += int(n)
		if err != nil || n < int64(limit) {
			return err
		}
		if p.pause == nil {
			continue
		}
		if err := p.pause(); err != nil {
			return err
		}
	}
	return nil
}

// whole takes a day out of the history, unless it has more rows than may go. They are counted before, so that no
// completion waits for that; one that is replayed in between counts, too. Where they cannot be counted, say in the
// time that a role has, the day goes all the same, if all may.
func (p *historyPurge) whole(ctx context.Context, d *day) (removed bool, err error) {
	given := args{"day": d.name}
	var rows int64
	uncounted := p.read(ctx, Count, func(ctx context.Context, conn Conn) (err error) {
		rows, err = p.number(ctx, conn, "history_rows", given)
		return err
	})
	if uncounted != nil {
		rows = 0
		uncounted = fmt.Errorf("count what goes: %w", uncounted)
	}
	if p.most > 0 && (uncounted != nil || rows > int64(p.most-p.removed)) {
		return false, uncounted
	}
	gone, err := p.history(ctx, "history_detach", given)
	if gone == 1 {
		p.removed += int(rows)
	}
	return true, errors.Join(uncounted, err)
}
