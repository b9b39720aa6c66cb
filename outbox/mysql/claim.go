package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/sqlscan"
	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Exchange implements driver.Delivery. What was published is a transaction of one statement, where
// there are no other outcomes, which are written under the shard's lock. A claim reads the window without a lock, and takes
// what was decided about it in a transaction under the shard's lock, which it does not wait for:
// where another transaction has it, the decision is made anew, and after a few times the batch is
// Busy. What was claimed is read last, when the lock is free again.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	exchanged, err := claims.Exchange(ctx, thin{s}, completion, claim)
	if err == nil && claim != nil {
		s.makeMarks(ctx, claim.Broker, claim.Shard)
	}
	if err != nil {
		return exchanged, fmt.Errorf("mysql: claim and complete in %s: %w", s.table, explain(err))
	}
	return exchanged, nil
}

// thin is the store as claims use it.
type thin struct{ *Store }

// Exchange implements claims.Store. A commit is what costs most here, so that what was published
// and a claim that needs no decision are one transaction. Where that fails they follow one another,
// since the completion stands by itself.
func (s thin) Exchange(ctx context.Context, completion *driver.Completion, c *driver.Claim) (answer claims.Answer, err error) {
	if completion != nil && c != nil && len(completion.Published) > 0 && len(completion.Other) == 0 && !c.Wake && !c.AroundLocked {
		answer, again, err := s.together(ctx, completion, c)
		if !again {
			return answer, err
		}
	}
	if completion != nil {
		if answer.Completed, err = s.complete(ctx, completion); err != nil {
			return answer, err
		}
	}
	if c == nil {
		return answer, nil
	}
	if c.Wake {
		err = retry(ctx, func() error {
			answer.LiftVersion, answer.Blocks, err = s.blocks(ctx, c)
			return err
		})
		if err != nil {
			return answer, err
		}
	}
	var w driver.Window
	if !c.Unordered {
		w, err = s.Window(ctx, c)
		answer.Window, answer.Batch.Blocked, answer.Batch.Lease = &w, w.Blocked, leaseOf(c)
		return answer, err
	}
	err = retry(ctx, func() error {
		return s.transaction(ctx, func(tx *sql.Tx) error {
			w, answer.Batch, err = s.takeReady(ctx, tx, c)
			return err
		})
	})
	if err == nil {
		err = s.finish(ctx, c, &w, &answer)
	}
	return answer, err
}

// together marks or removes what was published, and claims what needs no decision, in one transaction. again
// says that nothing of it was done; not so after an error of the commit, whose result is
// unknown.
func (s thin) together(ctx context.Context, completion *driver.Completion, c *driver.Claim) (answer claims.Answer, again bool, err error) {
	var (
		w      driver.Window
		marked int
	)
	err = s.transaction(ctx, func(tx *sql.Tx) (err error) {
		again = true
		if marked, err = s.published(ctx, tx, completion); err != nil {
			return err
		}
		if c.Unordered {
			w, answer.Batch, err = s.takeReady(ctx, tx, c)
		} else {
			w, answer.Batch, err = s.takeSimple(ctx, tx, c)
		}
		again = err != nil
		return err
	})
	if err == nil {
		answer.Completed = &driver.Completed{Lost: len(completion.Published) - marked}
		err = s.finish(ctx, c, &w, &answer)
	}
	return answer, again, err
}

// Window implements claims.Store. Of a claim without order it reads what waits, too. The row with the
// shard's version is made before anybody can decide anything about the shard.
func (s thin) Window(ctx context.Context, c *driver.Claim) (w driver.Window, err error) {
	for range contention.Tries {
		var known bool
		err = retry(ctx, func() error {
			if c.Ahead > 0 {
				w, known, err = s.lookAhead(ctx, c)
			} else {
				w, known, err = s.window(ctx, s.db, c)
			}
			return err
		})
		if err != nil || known {
			return w, err
		}
		if _, err := s.exec(ctx, s.db, "make_shard", args{"broker": c.Broker, "shard": c.Shard}); err != nil && brokenOff(err) == contention.None {
			return w, err
		}
	}
	return w, fmt.Errorf("the row of shard %d of broker %q in %s_shards cannot be made", c.Shard, c.Broker, s.table)
}

// Locked implements claims.Prober. Which session it is, the server tells only with further rights.
func (s *Store) Locked(ctx context.Context, _ string, rows []driver.Ref) (locked []driver.Ref, by string, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		for len(rows) > 0 {
			some := rows[:min(len(rows), listed)]
			rows = rows[len(some):]
			free, err := s.list(ctx, tx, "unlocked", args{"ids": jsonList(driver.IDs(some))})
			if err != nil {
				return err
			}
			for _, row := range some {
				if !slices.Contains(free, row.ID) {
					locked = append(locked, row)
				}
			}
		}
		return nil
	})
	return locked, "", err
}

// window reads a window, by a low-water mark where there is one. known says whether the shard has a
// version.
func (s *Store) window(ctx context.Context, on conn, c *driver.Claim) (w driver.Window, known bool, err error) {
	began := time.Now()
	mark, known := s.water.mark(c.Broker, c.Shard, began)
	if known {
		w, known, err = s.byMark(ctx, on, c, mark)
	}
	if !known && err == nil {
		mark = waterMark{}
		w, known, err = s.wholeWindow(ctx, on, c)
	}
	if err == nil {
		s.water.read(c.Broker, c.Shard, mark, w.Rows, began, time.Now())
	}
	return w, known, err
}

// wholeWindow reads a window from the shard's first row on.
func (s *Store) wholeWindow(ctx context.Context, on conn, c *driver.Claim) (w driver.Window, known bool, err error) {
	var version sql.NullInt64
	w.Rows = make([]driver.Row, 0, c.Limit)
	given := args{"broker": c.Broker, "shard": c.Shard, "window": c.Window, "sized": c.Bytes > 0}
	err = s.query(ctx, on, "window", given, func(scan scanner) error { return readRow(scan, &version, &w) })
	w.Version = version.Int64
	return w, version.Valid, err
}

// maxAhead bounds how many rows a claim passes over: this takes 12 microseconds a row on MariaDB 10.11.
const maxAhead = 250_000

// lookAhead reads what can go behind rows that cannot, and tells nothing of the first open row.
func (s *Store) lookAhead(ctx context.Context, c *driver.Claim) (w driver.Window, known bool, err error) {
	var version sql.NullInt64
	given := args{
		"broker": c.Broker, "shard": c.Shard, "window": c.Window, "sized": c.Bytes > 0, "ahead": min(c.Ahead, maxAhead), "near": driver.MaxNear, "per_key": c.PerKey,
	}
	err = s.query(ctx, s.db, "ahead", given, func(scan scanner) error { return readRow(scan, &version, &w) })
	w.Version = version.Int64
	return w, version.Valid, err
}

func readRow(scan scanner, version *sql.NullInt64, w *driver.Window) error {
	var (
		id, crashes, bytes, block sql.NullInt64
		key                       string
		leased, waits             sql.NullBool
	)
	if err := scan(version, &w.Blocked, &id, &key, &leased, &waits, &crashes, &bytes, &block); err != nil {
		return err
	}
	if id.Valid {
		w.Rows = append(w.Rows, driver.Row{
			Ref: driver.Ref{ID: id.Int64}, Key: key, Leased: leased.Bool, Waits: waits.Bool, Crashes: int(crashes.Int64), Bytes: bytes.Int64,
			HasBlock: block.Valid, Block: block.Int64,
		})
	}
	return nil
}

// takeReady claims the first ready rows of a shard where order is off. Where a decision is needed
// about them it takes none, and the batch has no token.
func (s *Store) takeReady(ctx context.Context, tx *sql.Tx, c *driver.Claim) (w driver.Window, batch driver.Batch, err error) {
	began := time.Now()
	mark, marked := s.water.mark(c.Broker, c.Shard, began)
	if marked {
		marked, err = s.holds(ctx, tx, c.Broker, c.Shard, mark, func(on conn) (version sql.NullInt64, err error) {
			if w, err = s.lockReady(ctx, tx, c, mark); err == nil { // the version is read last: what it says held before, too
				given := args{"broker": c.Broker, "shard": c.Shard, "server": mark.server}
				err = s.query(ctx, on, "still", given, func(scan scanner) error { return scan(&version) })
			}
			return version, err
		})
	}
	if !marked && err == nil {
		mark = waterMark{}
		w, err = s.lockReady(ctx, tx, c, mark)
	}
	if err == nil {
		s.water.read(c.Broker, c.Shard, mark, w.Rows, began, time.Now())
	}
	if batch.Lease = leaseOf(c); err == nil && simple(&w, c) {
		batch, err = s.mark(ctx, tx, c, driver.IDs(w.Refs()))
	}
	return w, batch, err
}

// lockReady locks the first ready rows of a shard: the late ones of a mark, and those behind it.
func (s *Store) lockReady(ctx context.Context, tx *sql.Tx, c *driver.Claim, mark waterMark) (w driver.Window, err error) {
	most := min(c.Window, c.Limit)
	given := args{"broker": c.Broker, "shard": c.Shard, "window": most, "sized": c.Bytes > 0, "floor": mark.from()}
	row := func(scan scanner) error {
		var row driver.Row
		err := scan(&row.ID, &row.Leased, (*sqlscan.Int)(&row.Crashes), &row.Bytes, &w.Blocked)
		w.Rows = append(w.Rows, row)
		return err
	}
	if len(mark.late) > 0 {
		late := s.statements["lock_late"]
		late.text = withList(late.text, "list", mark.late)
		if err := queryText(ctx, tx, late, given, row); err != nil {
			return w, err
		}
	}
	if given["window"] = most - len(w.Rows); len(w.Rows) < most {
		err = s.query(ctx, tx, "lock_ready", given, row)
	}
	return w, err
}

// takeSimple claims the head of a shard where all of it can be taken unchanged. Else it takes
// nothing, and the batch has no token.
func (s *Store) takeSimple(ctx context.Context, tx *sql.Tx, c *driver.Claim) (w driver.Window, batch driver.Batch, err error) {
	w, known, err := s.window(ctx, tx, c)
	if batch.Lease = leaseOf(c); err == nil && !known {
		return w, batch, claims.ErrConflict
	}
	if err == nil && simple(&w, c) {
		batch, err = s.take(ctx, tx, c, &driver.Choice{Version: w.Version, Rows: w.Refs()})
	}
	return w, batch, err
}

func simple(w *driver.Window, c *driver.Claim) bool {
	return len(w.Rows) > 0 && core.Simple(w, core.Limits{Rows: c.Limit, Bytes: int64(c.Bytes), PerKey: c.PerKey, Unordered: c.Unordered})
}

// finish reads, after the commit, what was claimed of a window. Where nothing was, the window is
// the answer.
func (s *Store) finish(ctx context.Context, c *driver.Claim, w *driver.Window, answer *claims.Answer) (err error) {
	batch := &answer.Batch
	if c.Unordered && len(w.Rows) < min(c.Window, c.Limit) { // rows were read in vain
		mark, _ := s.water.mark(c.Broker, c.Shard, time.Now()) // a hint: those that wait are counted to defer them
		given := args{"broker": c.Broker, "shard": c.Shard, "floor": mark.from()}
		err = s.query(ctx, s.db, "waiting", given, func(scan scanner) error { return scan(&batch.Waiting, &w.Blocked) })
	}
	if err == nil && batch.Lease.Token != uuid.Nil {
		err = s.fetch(ctx, c, batch, driver.IDs(w.Refs()))
	} else if len(w.Rows) > 0 || !c.Unordered {
		answer.Window = w
	}
	batch.Seen, batch.Blocked = len(w.Rows), w.Blocked
	return err
}

// leaseOf is the lease of a claim that has not taken anything yet.
func leaseOf(c *driver.Claim) driver.Lease {
	return driver.Lease{Broker: c.Broker, Shard: c.Shard, Duration: c.Lease}
}

// Take implements claims.Store.
func (s thin) Take(ctx context.Context, c *driver.Claim, choice *driver.Choice) (batch driver.Batch, err error) {
	err = decided(ctx, func() error {
		err := s.transaction(ctx, func(tx *sql.Tx) error {
			batch, err = s.take(ctx, tx, c, choice)
			return err
		})
		if err == nil {
			err = s.fetch(ctx, c, &batch, driver.IDs(choice.Rows))
		}
		return err
	})
	if err != nil {
		return driver.Batch{}, err
	}
	return batch, nil
}

// take claims rows in a transaction, where order is on all or none of them.
func (s *Store) take(ctx context.Context, tx *sql.Tx, c *driver.Claim, choice *driver.Choice) (driver.Batch, error) {
	if !c.Unordered {
		if err := s.lock(ctx, tx, "try_lock", c.Broker, c.Shard, choice.Version); err != nil {
			return driver.Batch{}, err
		}
	}
	batch, err := s.mark(ctx, tx, c, driver.IDs(choice.Rows))
	if err == nil && !c.Unordered && batch.Seen != len(choice.Rows) {
		err = claims.ErrConflict
	}
	return batch, err
}

// lock takes the lock of a shard, which must have the version about which something was decided.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, how, broker string, shard int, version int64) error {
	found, err := s.list(ctx, tx, how, args{"broker": broker, "shard": shard})
	if err == nil && (len(found) == 0 || found[0] != version) {
		err = claims.ErrConflict
	}
	return err
}

// listed bounds the ids that stand in one text: MariaDB makes a table of a list of a thousand, and
// then reads all rows.
const listed = 500

// mark claims rows in a transaction, under a token of its own. Seen is how many it has got.
func (s *Store) mark(ctx context.Context, tx *sql.Tx, c *driver.Claim, ids []int64) (batch driver.Batch, err error) {
	token, err := uuid.NewRandom()
	if err != nil {
		return batch, fmt.Errorf("make a claim token: %w", err)
	}
	batch.Lease = leaseOf(c)
	batch.Lease.Token = token
	given := args{"worker": storable(c.Worker), "token": digits(token), "lease": c.Lease.Microseconds(), "isolated": !c.Shared && len(ids) == 1}
	for some := range slices.Chunk(ids, listed) {
		take := s.statements["take"]
		take.text = withList(take.text, "list", some)
		taken, err := execText(ctx, tx, take, given)
		if err != nil {
			return batch, err
		}
		batch.Seen += taken
	}
	return batch, nil
}

// fetch reads what was claimed of these rows, where anything was.
func (s *Store) fetch(ctx context.Context, c *driver.Claim, batch *driver.Batch, ids []int64) error {
	if batch.Seen == 0 {
		return nil
	}
	batch.Messages = make([]driver.Message, 0, batch.Seen)
	given := args{"ids": jsonList(ids), "token": digits(batch.Lease.Token), "broker": c.Broker, "most": driver.Bound(c.MaxPayload)}
	err := s.query(ctx, s.db, "fetch", given, func(scan scanner) error {
		batch.Messages = append(batch.Messages, driver.Message{})
		m := &batch.Messages[len(batch.Messages)-1]
		var (
			id      sql.RawBytes
			created sql.NullInt64
			ours    bool
		)
		err := scan(&m.ID, &id, &ours, &m.Stream, &m.Type, &m.OrderingKey, (*sqlscan.Int)(&m.Priority), &m.ContentType, &m.Payload, &m.Headers,
			&m.CorrelationID, (*sqlscan.Int)(&m.Attempts), (*sqlscan.Int)(&m.Crashes), &created, (*sqlscan.Micros)(&m.ExpiresIn), &m.Unread)
		if err != nil {
			return err
		}
		identify(m, id)
		m.CreatedAt = time.UnixMicro(created.Int64).UTC()
		switch {
		case !created.Valid:
			m.Malformed = &outbox.MalformedError{Column: "created_at", Reason: "is no time: a session that is not strict has written a zero date"}
		case !ours:
			m.Malformed = &outbox.MalformedError{Column: "target_broker", Reason: "ends in spaces, which the server ignores: no broker has this name"}
		}
		return nil
	})
	if n := len(batch.Messages); n > 0 {
		batch.Lease.FirstID, batch.Lease.LastID = batch.Messages[0].ID, batch.Messages[n-1].ID
	}
	return err
}

// identify sets the message's id, which is a UUID unless a session has passed over the CHECKs.
func identify(m *driver.Message, id []byte) {
	read, err := uuid.FromBytes(id)
	if m.MessageID = read.String(); err != nil {
		m.MessageID = hex.EncodeToString(id)
		m.Malformed = &outbox.MalformedError{Column: "message_id", Reason: fmt.Sprintf("has %d bytes: a UUID has 16", len(id))}
	}
}

// Renew implements driver.Delivery.
func (s *Store) Renew(ctx context.Context, lease driver.Lease) (kept int, err error) {
	given := args{
		"broker": lease.Broker, "shard": lease.Shard, "token": digits(lease.Token), "first": lease.FirstID, "last": lease.LastID,
		"lease": lease.Duration.Microseconds(),
	}
	counted := noVersion
	err = retry(ctx, func() error {
		return s.transaction(ctx, func(tx *sql.Tx) error {
			version, err := s.list(ctx, tx, "lock", given)
			if err != nil {
				return held(err)
			}
			counted = noVersion
			late, err := s.list(ctx, tx, "renew_late", given)
			if err == nil && len(late) > 0 && late[0] > 0 {
				if _, err = s.exec(ctx, tx, "turn", given); len(version) > 0 {
					counted = version[0]
				}
			}
			if err == nil {
				kept, err = s.exec(ctx, tx, "renew", given)
			}
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("mysql: renew a lease in %s: %w", s.table, explain(err))
	}
	if counted != noVersion {
		s.water.changed(lease.Broker, lease.Shard, counted, nil)
	}
	return kept, nil
}

// Watch implements driver.Delivery: nothing of this database's is known to come and go.
func (*Store) Watch(context.Context) ([]admin.Finding, error) { return nil, nil }

// withList fills a list of ids into a place of a text, where it has that.
func withList(text, place string, ids []int64) string {
	before, after, found := strings.Cut(text, "{{"+place+"}}")
	if !found {
		return text
	}
	list := make([]byte, 0, len(text)+len(ids)*8)
	list = append(list, before...)
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	return string(append(list, after...))
}

// jsonList is how a list travels into a statement.
func jsonList(items any) string {
	list, err := json.Marshal(items)
	if err != nil {
		panic(fmt.Sprintf("texts and numbers always encode: %v", err))
	}
	return string(list)
}
