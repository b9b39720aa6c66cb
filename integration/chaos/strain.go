//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// strain are the statements by which the rig gets in the way of relays.
type strain struct {
	lock     string // some open rows above an id, as many as the second parameter says
	update   string // of one row, whose id is the parameter, that changes nothing
	halfSent string // how many sessions of a process, the parameter, are in a transaction and wait for the rest of it
}

// kinds are the faults that can be done so.
func (s strain) kinds() []Kind {
	if s == (strain{}) {
		return nil
	}
	return []Kind{LockRows, UpdateRows, StopInPipeline}
}

const (
	// lockAgain is the time between two looks for further rows to lock.
	lockAgain = 100 * time.Millisecond
	// recent bounds how far back these rows lie.
	recent = 5000
	// lookAgain is the time between two looks for a transaction that is half sent; MySQL tells nothing
	// new before it was not asked for a tenth of a second.
	lookAgain = 120 * time.Millisecond
	// halfPatience bounds the search for one.
	halfPatience = 5 * time.Second
)

// holdRows keeps a transaction open that locks rows as they come, until it has as many as the fault
// wants. A database that goes away, or takes the transaction for the victim of a deadlock, ends it.
func (s *fixture) holdRows(ctx context.Context, f Fault) error {
	ctx, cancel := context.WithTimeout(ctx, f.For)
	defer cancel()
	db, err := sql.Open(s.database.pool, s.servers.database.url)
	if err != nil {
		return err
	}
	defer db.Close() // what it can say is that the database is gone
	for ctx.Err() == nil {
		if err := s.holdSome(ctx, db, f); err != nil {
			pauseFor(ctx, lockAgain)
		}
	}
	return nil
}

// holdSome is one such transaction, for as long as ctx lasts.
func (s *fixture) holdSome(ctx context.Context, db *sql.DB, f Fault) error {
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	for held := 0; ctx.Err() == nil; pauseFor(ctx, lockAgain) {
		if held >= f.Amount {
			continue
		}
		all, waiting, err := s.lockSome(ctx, tx, f.Amount-held)
		if err != nil {
			return err
		}
		held += all
		s.locked.Add(int64(all))
		if f.Kind == UpdateRows {
			for _, id := range waiting {
				if _, err := tx.ExecContext(ctx, s.database.strain.update, id); err != nil {
					return err
				}
			}
		}
	}
	if f.Kind == UpdateRows {
		return tx.Commit()
	}
	return nil
}

// lockSome locks open rows, and returns how many and the ids of those that wait.
func (s *fixture) lockSome(ctx context.Context, tx *sql.Tx, most int) (all int, waiting []int64, err error) {
	var highest sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT max(id) FROM outbox_messages").Scan(&highest); err != nil {
		return 0, nil, err
	}
	rows, err := tx.QueryContext(ctx, s.database.strain.lock, highest.Int64-recent, most)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close() // Err tells
	for rows.Next() {
		var (
			id     int64
			status string
		)
		if err := rows.Scan(&id, &status); err != nil {
			return 0, nil, err
		}
		if all++; status != "processing" {
			waiting = append(waiting, id)
		}
	}
	return all, waiting, rows.Err()
}

// trickle sends a request in pieces of some bytes, so that a transaction is on its way for longer than
// a stop takes.
var trickle = toxic{"slicer", []string{upstream}, map[string]any{"average_size": 100, "size_variation": 0, "delay": 400_000}}

// stopInPipeline stops a relay while one of its sessions is in a transaction and waits for the rest
// of it, which trickles through the network until the relay goes on.
func (s *fixture) stopInPipeline(ctx context.Context, f Fault) error {
	l, p, over := s.network.links[f.Target+"/database"], s.processes[f.Target], time.Now().Add(f.For)
	if err := l.apply(trickleToxic, trickle); err != nil {
		return fmt.Errorf("chaos: %s at %s: %w", f.Kind, l.name, err)
	}
	found := s.halfSent(ctx, f.Target)
	p.hold(ctx, time.Until(over), func() {
		pauseFor(ctx, lookAgain)
		if found && s.isHalfSent(ctx, f.Target) {
			s.inPipeline.Add(1)
		}
	})
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), healPatience)
	defer cancel()
	if err := l.remove(ending, trickleToxic, trickle); err != nil {
		return fmt.Errorf("chaos: end %s at %s: %w", f.Kind, l.name, err)
	}
	return nil
}

// halfSent waits until a session of a process is in a transaction and waits for the rest of it.
func (s *fixture) halfSent(ctx context.Context, process string) bool {
	ctx, cancel := context.WithTimeout(ctx, halfPatience)
	defer cancel()
	for ctx.Err() == nil {
		if s.isHalfSent(ctx, process) {
			return true
		}
		pauseFor(ctx, lookAgain)
	}
	return false
}

// isHalfSent does not know while the database is down.
func (s *fixture) isHalfSent(ctx context.Context, process string) bool {
	var sessions int
	err := s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, s.database.strain.halfSent, process).Scan(&sessions)
	})
	return err == nil && sessions > 0
}
