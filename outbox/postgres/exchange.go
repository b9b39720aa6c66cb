package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Exchange implements driver.Delivery: one round trip, two transactions. The first writes the completion; outcomes other than
// published under the shard's lock, since the place of a failed head and of its released followers must change in one step
// for the next claim. The second makes the claim under the same lock; when somebody else holds it at that moment, the
// batch is Busy. What was claimed is read last, when the lock is free again. A second round trip follows where a shard was taken for plain
// and is not.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	var completed *driver.Completed
	for try := 1; ; try++ {
		result, err := s.exchange(ctx, completion, claim)
		if result.Completed != nil {
			completed, completion = result.Completed, nil // it stands, whatever becomes of the claim
		}
		result.Completed = completed
		if err == nil {
			return result, nil
		}
		if !transient(err) || try == maxTries {
			result.Batch = driver.Batch{}
			return result, fmt.Errorf("postgres: claim and complete in %s: %w", s.table, err)
		}
	}
}

// maxTries bounds how often a transaction is repeated that the server has broken off in favour of another one.
const maxTries = 3

// transient reports whether a transaction was broken off in favour of another one. A late completion and a claim that
// recovers the same rows can deadlock; and a claim breaks itself off when a row was changed under its hands (22012).
func transient(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40P01" || pgErr.Code == "40001" || pgErr.Code == "22012")
}

func (s *Store) exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	x := exchange{store: s, completion: completion, claim: claim}
	if claim != nil {
		x.baseline = s.water.take(claim.Broker, claim.Shard, time.Now())
		x.plain = s.plain.likely(claim)
	}
	err := x.run(ctx)
	if err == nil && x.plain && !x.wasPlain && !x.result.Batch.Busy { // then nothing was taken, and the shard is looked at in full
		again := exchange{store: s, claim: claim, baseline: x.baseline}
		again.result.Completed = x.result.Completed
		err = again.run(ctx)
		x, x.wasPlain = again, false
	}
	if err == nil && claim != nil {
		x.sighting.busy = x.result.Batch.Busy
		s.water.learn(claim.Broker, claim.Shard, x.baseline, x.sighting, time.Now())
		if !x.sighting.busy {
			s.plain.learn(claim, x.wasPlain)
		}
	}
	return x.result, err
}

// run sends the exchange and reads the answers.
func (x *exchange) run(ctx context.Context) error {
	x.complete()
	if err := x.claimRows(); err != nil || x.batch.Len() == 0 {
		return err
	}
	return x.store.conn(ctx, func(conn *pgx.Conn) error {
		answers := conn.SendBatch(ctx, &x.batch)
		if err := x.read(answers); err != nil {
			_ = answers.Close() // the first error tells what happened
			return err
		}
		return answers.Close()
	})
}

// exchange is one call under way: the statements as they are sent and, in the same order, how to read their answers.
type exchange struct {
	store      *Store
	completion *driver.Completion
	claim      *driver.Claim
	batch      pgx.Batch
	readers    []func(pgx.BatchResults) error
	marked     int
	token      uuid.UUID
	baseline   baseline
	plain      bool // the claim is made with claim_plain.sql
	wasPlain   bool // the window was
	sighting   sighting
	result     driver.Exchanged
}

func (x *exchange) send(read func(pgx.BatchResults) error, text string, args ...any) {
	if read == nil {
		read = func(answers pgx.BatchResults) error { _, err := answers.Exec(); return err }
	}
	x.batch.Queue(text, args...)
	x.readers = append(x.readers, read)
}

func (x *exchange) read(answers pgx.BatchResults) error {
	for _, read := range x.readers {
		if err := read(answers); err != nil {
			return err
		}
	}
	return nil
}
