package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// makeMarks makes low-water marks for those of some shards whose claims are slow (see lowWater), while the
// caller goes on. What fails here costs time alone, and is tried again.
func (s *Store) makeMarks(ctx context.Context, broker string, shards ...int) {
	began := time.Now()
	slow := s.water.begin(broker, shards, began)
	if len(slow) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), marksTime)
		defer cancel()
		made := 0
		_ = s.onSession(ctx, s.db, func(conn *sql.Conn) (err error) {
			made, err = s.makeMarksOn(ctx, conn, broker, slow)
			return err
		})
		s.water.end(broker, slow, made, began, time.Now())
	}()
}

// marksTime bounds the making of marks.
const marksTime = 30 * time.Second

// makeMarksOn takes the steps for which it is time, and returns for how many shards it has made a mark.
func (s *Store) makeMarksOn(ctx context.Context, conn *sql.Conn, broker string, shards []int) (made int, err error) {
	asked := time.Now()
	if _, err := s.list(ctx, conn, "server_clock", nil); err != nil {
		return 0, err
	}
	if shards = s.water.slower(broker, shards, time.Since(asked)); len(shards) == 0 {
		return 0, nil
	}
	server, _, err := s.recognize(ctx, conn)
	if err != nil || s.water.refuses() {
		return 0, err
	}
	steps, err := s.readDirty(ctx, conn, server, broker, shards)
	if err != nil {
		return 0, err
	}
	for _, step := range steps { // they read what is committed
		if err := step(ctx); err != nil && !errors.Is(err, errStale) {
			return made, err
		}
		made++
	}
	return made, nil
}

// readDirty sees what is not committed: who writes, and the rows of each shard for which a mark can be
// made, by the step that it returns for it.
func (s *Store) readDirty(ctx context.Context, conn *sql.Conn, server, broker string, shards []int) (steps []func(context.Context) error, err error) {
	dirty, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = dirty.Rollback() }() // it has changed nothing
	if err := s.seeWriters(ctx, dirty, server); err != nil {
		return nil, err
	}
	for _, shard := range shards {
		from, horizon := s.water.basis(broker, shard)
		if horizon < from.floor || horizon == from.floor && len(from.late) == 0 {
			continue
		}
		began := time.Now()
		mark, bound, err := s.openRows(ctx, dirty, broker, shard, from, horizon)
		if err != nil {
			return nil, err
		}
		mark.server = server
		steps = append(steps, func(ctx context.Context) error {
			if err := s.settle(ctx, conn, broker, shard, from, &mark, bound); err != nil {
				return err
			}
			s.water.raise(broker, shard, from, mark, began, time.Now())
			return nil
		})
	}
	return steps, dirty.Commit()
}

// seeWriters takes the steps to a new horizon for which it is time.
func (s *Store) seeWriters(ctx context.Context, dirty *sql.Tx, server string) error {
	highest, err := s.list(ctx, dirty, "highest", nil) // first of all: a transaction that has read nothing is on no list
	if err != nil {
		return err
	}
	if s.water.listDue(time.Now()) {
		busy, known, err := s.writers(ctx, dirty)
		if numbered(err, 1227) { // the right is missing
			s.water.refuse()
			return err
		}
		if err != nil && !notUTF8(err) {
			return err
		}
		if known {
			s.water.listed(server, busy, time.Now())
		} else {
			s.water.listedBefore(time.Now())
		}
	}
	s.water.sight(server, highest[0]+1, time.Now())
	return nil
}

// writers lists the transactions that write and execute a statement right now. known is false where the
// server has not looked.
func (s *Store) writers(ctx context.Context, on conn) (busy []string, known bool, err error) {
	st := s.statements["writers"]
	st.text = withList(st.text, "nonce", []int64{rand.Int64()})
	err = queryText(ctx, on, st, nil, func(scan scanner) error {
		var (
			name                   string
			executing, own, answer bool
		)
		err := scan(&name, &executing, &own, &answer)
		known = known || own && answer
		if executing && !own {
			busy = append(busy, name)
		}
		return err
	})
	return busy, known, err
}

// openRows reads the rows below a horizon that are open, committed or not, and those of the mark before
// that are still there. bound is the horizon, or lower where these are more than a mark may have.
func (s *Store) openRows(ctx context.Context, dirty *sql.Tx, broker string, shard int, from waterMark, horizon int64) (mark waterMark, bound int64, err error) {
	late, bound := []int64{}, horizon
	if len(from.late) > 0 {
		if late, err = s.list(ctx, dirty, "existing", args{"ids": jsonList(from.late)}); err != nil {
			return mark, 0, err
		}
	}
	room := maxLate - len(late)
	open, err := s.list(ctx, dirty, "unfinished", args{"broker": broker, "shard": shard, "floor": from.from(), "horizon": horizon, "most": room + 1})
	if err != nil {
		return mark, 0, err
	}
	if len(open) > room {
		bound, open = open[room], open[:room]
	}
	mark.late = merged(late, open)
	return mark, bound, nil
}

// errStale says that a mark was made of one that does not hold any more.
var errStale = errors.New("the mark before does not hold any more")

// settle reads what is committed, and makes the mark that follows from it.
func (s *Store) settle(ctx context.Context, conn *sql.Conn, broker string, shard int, from waterMark, mark *waterMark, bound int64) error {
	var version, first sql.NullInt64
	given := args{"broker": broker, "shard": shard, "floor": from.from(), "horizon": bound}
	err := s.query(ctx, conn, "first_open", given, func(scan scanner) error { return scan(&version, &first) })
	if err != nil {
		return err
	}
	if !version.Valid || from.floor > 0 && version.Int64 != from.version {
		s.water.forget(broker, shard, from.version)
		return errStale
	}
	if mark.version, mark.floor = version.Int64, bound; first.Valid {
		mark.floor = first.Int64
	}
	if len(from.late) > 0 { // one whose DELETE was not committed is there again, perhaps
		there, err := s.list(ctx, conn, "existing", args{"ids": jsonList(from.late)})
		if err != nil {
			return err
		}
		mark.late = merged(mark.late, there)
	}
	mark.late = mark.late[:lowerThan(mark.late, mark.floor)]
	if len(mark.late) == 0 {
		return nil
	}
	finished, err := s.list(ctx, conn, "finished", args{"ids": jsonList(mark.late)})
	mark.late = slices.DeleteFunc(mark.late, func(id int64) bool { return slices.Contains(finished, id) })
	return err
}

// recognize finds out of which server a session is, notes it in the session, and says whether the marks
// are of that one; others are dropped. Where several servers hand out ids at a time, these do not ascend,
// and where the server lets inserts wait that have their ids, they are on no list meanwhile: there are no
// marks then.
func (s *Store) recognize(ctx context.Context, on conn) (server string, same bool, err error) {
	variables := map[string]string{}
	keep := func(scan scanner) error {
		var name, value string
		err := scan(&name, &value)
		variables[strings.ToLower(name)] = value
		return err
	}
	for _, statement := range []string{"server", "uptime"} {
		if err := s.query(ctx, on, statement, nil, keep); err != nil {
			return "", false, err
		}
	}
	clock, err := s.list(ctx, on, "server_clock", nil)
	if err != nil {
		return "", false, err
	}
	uptime, err := strconv.ParseInt(variables["uptime"], 10, 64)
	if err != nil {
		return "", false, fmt.Errorf("the server tells no uptime: %w", err)
	}
	name := strings.Join([]string{variables["hostname"], variables["port"], variables["server_id"], variables["server_uuid"]}, ":")
	refuses := isOn(variables, "wsrep_on") || variables["auto_increment_increment"] != "1" ||
		cmp.Or(variables["innodb_max_purge_lag"], "0") != "0" || cmp.Or(variables["innodb_thread_concurrency"], "0") != "0"
	server, same = s.water.met(name, clock[0]-uptime, refuses)
	_, err = s.exec(ctx, on, "name_session", args{"server": server})
	return server, same, err
}

// onSession calls f with a session: that of a connection, or one of a pool.
func (s *Store) onSession(ctx context.Context, on conn, f func(conn *sql.Conn) error) error {
	if conn, ok := on.(*sql.Conn); ok {
		return f(conn)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	err = f(conn)
	return errors.Join(err, conn.Close())
}

// byMark reads the head of a shard by a mark, in one session. valid is false where the mark did not hold.
func (s *Store) byMark(ctx context.Context, on conn, c *driver.Claim, m waterMark) (w driver.Window, valid bool, err error) {
	st := s.statements["window_marked"]
	st.text = withList(st.text, "list", lateList(m.late))
	given := args{"broker": c.Broker, "shard": c.Shard, "window": c.Window, "sized": c.Bytes > 0, "floor": m.from(), "server": m.server}
	read := func(on conn) (version sql.NullInt64, err error) {
		w = driver.Window{Rows: make([]driver.Row, 0, c.Limit)}
		err = queryText(ctx, on, st, given, func(scan scanner) error { return readRow(scan, &version, &w) })
		return version, err
	}
	valid, err = s.holds(ctx, on, c.Broker, c.Shard, m, read)
	w.Version = m.version
	return w, valid, err
}

// holds reads by a mark, and reports whether the mark held: read returns the version of the shard, none
// where the session is not known to be of the mark's server. It reads again where it is.
func (s *Store) holds(ctx context.Context, on conn, broker string, shard int, m waterMark, read func(on conn) (sql.NullInt64, error)) (valid bool, err error) {
	session := func(conn conn) error {
		version, err := read(conn)
		if err == nil && !version.Valid {
			_, same, unknown := s.recognize(ctx, conn)
			if refused := new(mysql.MySQLError); errors.As(unknown, &refused) && brokenOff(unknown) == contention.None {
				return nil // a proxy, perhaps, that lets none of that through: then there is no mark
			}
			if err = unknown; err == nil && same {
				version, err = read(conn)
			}
		}
		valid = err == nil && version.Valid && version.Int64 == m.version
		return err
	}
	if tx, ok := on.(*sql.Tx); ok {
		err = session(tx)
	} else {
		err = s.onSession(ctx, on, func(conn *sql.Conn) error { return session(conn) })
	}
	if err == nil && !valid {
		s.water.forget(broker, shard, m.version)
	}
	return valid, err
}

// lateList is a list for a statement, which has to have one entry.
func lateList(late []int64) []int64 {
	if len(late) == 0 {
		return []int64{0}
	}
	return late
}
