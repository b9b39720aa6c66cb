package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Exchange implements driver.Delivery. Where the head of the shard is simple, it is one round trip
// with two transactions: the first writes the completion, the second claims; what was claimed is
// read last, when nothing is locked any more. Else the window is read, and what was decided about
// it is taken in a second round trip.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := claims.Exchange(ctx, thin{s}, completion, claim)
	if err != nil {
		return exchanged, fmt.Errorf("postgres: claim and complete in %s: %w", s.table, err)
	}
	return exchanged, nil
}

// thin is the store as claims use it.
type thin struct{ *Store }

// brokenOff says why the server broke a transaction off. A late completion can deadlock with a claim
// that recovers the same rows; and each transaction gives way to a session that has locked a row
// (sql/lock.sql). The wait for a shard's lock ends in the same way, but no sooner than patience does.
func brokenOff(err error) contention.Cause {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return contention.None
	}
	switch pgErr.Code {
	case "40P01", "40001":
		return contention.Lost
	case lockNotAvailable:
		return contention.Locked
	default:
		return contention.None
	}
}

// Exchange implements claims.Store.
func (s thin) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (answer claims.Answer, err error) {
	var (
		completed *driver.Completed
		locked    error // a row of the completion is
	)
	try := func() error {
		answer, err = s.exchange(ctx, completion, claim)
		if answer.Completed != nil {
			completed, completion = answer.Completed, nil // it stands, whatever becomes of the claim
		}
		answer.Completed = completed
		return err
	}
	err = contention.Retry(ctx, s.patience, brokenOff, func() error {
		began := time.Now()
		err := try()
		switch {
		case brokenOff(err) != contention.Locked:
			return err
		case completion != nil && time.Since(began) < shardPatience:
			locked = fmt.Errorf("%w: %w", claims.ErrLocked, err)
			return nil
		case completion != nil || claim == nil || claim.AroundLocked:
			return err
		}
		around := *claim // it is rows of the claim that are locked
		around.AroundLocked = true
		claim = &around
		err = try()
		answer.AroundLocked = true
		return err
	})
	return answer, errors.Join(err, locked)
}

func (s *Store) exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (claims.Answer, error) {
	x := exchange{store: s, completion: completion, claim: claim}
	if claim != nil {
		x.baseline = s.water.take(claim.Broker, claim.Shard, time.Now())
		if !claim.AroundLocked {
			x.simple, x.few = s.simple.guess(claim)
		}
	}
	err := x.run(ctx)
	if err == nil && x.simple && !x.wasSimple && !x.answer.Batch.Busy { // then nothing was taken, and the window is read
		again := exchange{store: s, claim: claim, baseline: x.baseline}
		again.answer = x.answer
		err = again.run(ctx)
		x = again
		x.wasSimple = false
	}
	if err == nil {
		x, err = s.checkTaken(ctx, x)
	}
	if err == nil && claim != nil {
		x.sighting.busy = x.answer.Batch.Busy
		s.water.learn(claim.Broker, claim.Shard, x.baseline, x.sighting, time.Now())
		if !x.sighting.busy {
			s.simple.learn(claim, x.wasSimple, &x.answer.Batch)
		}
	}
	return x.answer, err
}

// checkTaken reads messages that did not come with the claim, and decides where they must not go as they
// were taken.
func (s *Store) checkTaken(ctx context.Context, x exchange) (exchange, error) {
	if batch := &x.answer.Batch; x.few && batch.Seen > 0 && len(batch.Messages) == 0 { // more than a few
		if err := x.fetchLate(ctx); err != nil {
			return x, err
		}
	}
	if repeats(x.answer.Batch.Messages) || x.passedOver() {
		return s.decideInstead(ctx, &x)
	}
	return x, nil
}

// passedOver reports whether a claim that tried to take the head of a shard as it stood missed a row of
// it, which another session was changing. The rows behind must not go out before that row.
func (x *exchange) passedOver() bool {
	return x.simple && x.wasSimple && !x.claim.Unordered && len(x.answer.Batch.Messages) < x.answer.Batch.Seen
}

// run sends the exchange and reads the answers.
func (x *exchange) run(ctx context.Context) error {
	x.complete()
	if err := x.claimRows(); err != nil || x.batch.Len() == 0 {
		return err
	}
	return x.flush(ctx)
}

func (x *exchange) flush(ctx context.Context) error {
	return x.store.conn(ctx, func(conn *pgx.Conn) error {
		answers := conn.SendBatch(ctx, &x.batch)
		if err := x.read(answers); err != nil {
			_ = answers.Close() // the first error tells what happened
			return err
		}
		return answers.Close()
	})
}

// exchange is one call in progress: the statements as they are sent and, in the same order, how to
// read their answers.
type exchange struct {
	store      *Store
	completion *driver.Completion
	claim      *driver.Claim
	batch      pgx.Batch
	readers    []func(pgx.BatchResults) error
	marked     int
	token      uuid.UUID
	baseline   baseline
	simple     bool // the claim is tried unchanged
	few        bool // and should find a few rows, which come with its answer
	wasSimple  bool // the window was
	sighting   sighting
	answer     claims.Answer
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

// decided runs what was decided. An error by which a statement says that what was decided about has
// changed becomes claims.ErrConflict, and one of a locked row claims.ErrLocked; the wait for the lock
// of a shard, which takes longer, remains an error.
func (x *exchange) decided(ctx context.Context) error {
	began := time.Now()
	err := x.flush(ctx)
	switch cause := brokenOff(err); {
	case cause == contention.Lost:
		return claims.ErrConflict
	case cause == contention.Locked && time.Since(began) < shardPatience:
		return fmt.Errorf("%w: %w", claims.ErrLocked, err)
	}
	return err
}

// shardPatience is less than the wait for the lock of a shard takes (sql/lock.sql), and more than that
// for a row behind it.
const shardPatience = 9 * time.Second

// Take implements claims.Store.
func (s thin) Take(ctx context.Context, c *driver.Claim, choice *driver.Choice) (driver.Batch, error) {
	token, err := uuid.NewRandom()
	if err != nil {
		return driver.Batch{}, fmt.Errorf("make a claim token: %w", err)
	}
	x := exchange{store: s.Store, claim: c, token: token}
	x.answer.Batch.Seen = len(choice.Rows)
	x.send(nil, begin)
	isolated := !c.Shared && len(choice.Rows) == 1
	first, last, messages := between(choice.Rows)
	if c.Unordered {
		x.send(nil, s.sql.takeSettings)
		x.send(nil, s.sql.takeUnordered, c.Broker, c.Shard, messages, c.Worker, pgUUID(token), c.Lease.Microseconds(), isolated, first, last)
	} else {
		x.send(nil, s.sql.tryLock, shardLock(c.Broker, c.Shard))
		x.send(nil, s.sql.take, c.Broker, c.Shard, choice.Version, messages, c.Worker, pgUUID(token), c.Lease.Microseconds(), isolated, first, last)
	}
	x.send(nil, "COMMIT")
	x.fetch()
	err = x.decided(ctx)
	if batch := &x.answer.Batch; err == nil && !c.Unordered && len(batch.Messages) < len(choice.Rows) {
		return driver.Batch{}, cmp.Or(s.giveBack(ctx, batch), claims.ErrConflict)
	}
	return x.answer.Batch, err
}

// Window implements claims.Store.
func (s thin) Window(ctx context.Context, c *driver.Claim) (w driver.Window, err error) {
	x := exchange{store: s.Store, claim: c}
	b := s.water.peek(c.Broker, c.Shard)
	x.send(nil, begin)
	if c.Ahead > 0 {
		x.send(nil, s.sql.settings)
		x.send(x.readWindow, s.sql.ahead, c.Broker, c.Shard, c.Window, c.Ahead, b.floor, b.version, b.sessions, b.writers, b.above, driver.MaxNear, c.PerKey)
	} else {
		x.send(nil, s.sql.planSettings)
		x.send(x.readWindow, s.sql.window, c.Broker, c.Shard, c.Window, false, b.floor, b.version, b.sessions, b.writers, b.above)
	}
	x.send(nil, "COMMIT")
	if err := x.flush(ctx); err != nil {
		return w, err
	}
	return *x.answer.Window, nil
}

// Locked implements claims.Prober. The transaction ends before anything else is done.
func (s *Store) Locked(ctx context.Context, broker string, rows []driver.Ref) (locked []driver.Ref, by string, err error) {
	var ids []pgtype.UUID
	_, _, messages := between(rows)
	x := exchange{store: s}
	x.send(nil, begin)
	x.send(nil, s.sql.planSettings)
	x.send(scanInto(&ids, &by), s.sql.locked, broker, messages)
	x.send(nil, "ROLLBACK") // which waits for no disk
	if err := x.flush(ctx); err != nil {
		return nil, "", err
	}
	found := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		found[id.Bytes] = true
	}
	for _, row := range rows {
		if found[row.MessageID] {
			locked = append(locked, row)
		}
	}
	return locked, by, nil
}

// Lift implements claims.Store.
func (s thin) Lift(ctx context.Context, lift *driver.Lift) error {
	var lowest *int64
	lower := func(answers pgx.BatchResults) error {
		var id *int64
		err := answers.QueryRow().Scan(&id)
		if id != nil && (lowest == nil || *id < *lowest) {
			lowest = id
		}
		return err
	}
	x := exchange{store: s.Store}
	x.send(nil, begin)
	x.send(nil, s.sql.lock, shardLock(lift.Broker, lift.Shard))
	mine := false
	x.send(scanInto(&mine), s.sql.turn, lift.Broker, lift.Shard, lift.Version)
	for i := range lift.Free {
		f := &lift.Free[i]
		first, last, messages := between(f.Rows)
		x.send(lower, s.sql.free, lift.Broker, f.Block.Key, messages, pgtype.UUID{Bytes: f.Block.MessageID, Valid: f.Move}, first, last, lift.Shard)
	}
	_, _, admitted := between(lift.Admit)
	x.send(lower, s.sql.lift, lift.Broker, blockIDs(lift.Wake), blockIDs(lift.Rest), blockIDs(lift.Drop), lift.Shard, admitted)
	x.send(nil, "COMMIT")
	if err := x.decided(ctx); err != nil {
		return err
	}
	if !mine {
		return claims.ErrConflict
	}
	s.water.lifted(lift.Broker, lift.Shard, lift.Version, lowest)
	return nil
}

// Defer implements claims.Store.
func (s thin) Defer(ctx context.Context, d *driver.Deferral) (deferred int, err error) {
	x := exchange{store: s.Store}
	first, last, rows := between(d.Rows)
	_, _, blocks := between(d.Blocks)
	x.send(nil, begin)
	x.send(nil, s.sql.lock, shardLock(d.Broker, d.Shard))
	mine, holds := false, false
	x.send(scanInto(&mine), s.sql.turn, d.Broker, d.Shard, d.Version)
	x.send(scanInto(&deferred, &holds),
		s.sql.deferRows, d.Broker, d.Shard, blocks, rows, d.Unordered, first, last)
	x.send(nil, "COMMIT")
	if err := x.decided(ctx); err != nil {
		return 0, err
	}
	if !mine || !holds {
		return 0, claims.ErrConflict
	}
	s.water.lifted(d.Broker, d.Shard, d.Version, nil)
	if deferred > 0 {
		s.water.deferred(d.Broker, d.Shard)
	}
	return deferred, nil
}

// scanInto reads one row.
func scanInto(targets ...any) func(pgx.BatchResults) error {
	return func(answers pgx.BatchResults) error { return answers.QueryRow().Scan(targets...) }
}

// between is which rows those are: all lie between two ids, and each has a message id of its own.
func between(rows []driver.Ref) (first, last int64, messages []pgtype.UUID) {
	messages = make([]pgtype.UUID, len(rows))
	for i := range rows {
		messages[i] = pgUUID(rows[i].MessageID)
	}
	if n := len(rows); n > 0 {
		first, last = rows[0].ID, rows[n-1].ID
	}
	return first, last, messages
}

// blockIDs are those of the rows of blocks.
func blockIDs(blocks []driver.BlockState) []pgtype.UUID {
	list := make([]pgtype.UUID, len(blocks))
	for i := range blocks {
		list[i] = pgUUID(blocks[i].MessageID)
	}
	return list
}
