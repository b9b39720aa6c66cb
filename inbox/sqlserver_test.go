package inbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/inbox"
)

// fake answers statements as SQL Server would, and notes what was sent. There is no server to be
// had for most runs.
type fake struct {
	sent   []string
	args   [][]driver.NamedValue
	answer func(query string) (row []driver.Value, err error)
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }
func (f *fake) Driver() driver.Driver                        { return nil }

type fakeConn struct{ f *fake }

func (fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (fakeConn) Close() error                        { return nil }
func (c fakeConn) Begin() (driver.Tx, error)         { return c, c.note("BEGIN", nil) }
func (c fakeConn) Commit() error                     { return c.note("COMMIT", nil) }
func (c fakeConn) Rollback() error                   { return c.note("ROLLBACK", nil) }

func (c fakeConn) note(query string, args []driver.NamedValue) error {
	c.f.sent, c.f.args = append(c.f.sent, query), append(c.f.args, args)
	return nil
}

func (c fakeConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	_ = c.note(query, args)
	_, err := c.f.answer(query)
	return driver.RowsAffected(1), err
}

func (c fakeConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	_ = c.note(query, args)
	row, err := c.f.answer(query)
	return &fakeRows{row}, err
}

type fakeRows struct{ row []driver.Value }

func (r *fakeRows) Columns() []string { return make([]string, max(len(r.row), 1)) }
func (*fakeRows) Close() error        { return nil }

func (r *fakeRows) Next(to []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(to, r.row)
	r.row = nil
	return nil
}

// faked is a handle on a fake that answers by what statements contain.
func faked(t *testing.T, answers map[string][]driver.Value) (*gorm.DB, *fake) {
	t.Helper()
	f := &fake{}
	f.answer = func(query string) ([]driver.Value, error) {
		for name, text := range inbox.StatementsOf("sqlserver", inbox.DefaultTable) {
			if query == text {
				return answers[name], nil
			}
		}
		if strings.HasPrefix(query, "UPDATE effects") {
			return nil, nil
		}
		return nil, errors.New("an unknown statement: " + query)
	}
	pool := sql.OpenDB(f)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	db, err := gorm.Open(sqlserver.New(sqlserver.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	return db, f
}

// On SQL Server the statement that claims selects who has won, and parameters go by their places.
func TestSQLServerWithoutAServer(t *testing.T) {
	t.Parallel()
	text := inbox.StatementsOf("sqlserver", inbox.DefaultTable)
	message := func() *inbox.Message {
		id := uuid.NewString()
		m, err := inbox.Decode([]byte(`{"specversion":"1.0","id":"`+id+`","source":"/test","type":"T.V.v1","data":{}}`), nil)
		require.NoError(t, err)
		m.Consumer, m.Source = consumer, "orders"
		return m
	}
	for name, test := range map[string]struct {
		answers map[string][]driver.Value
		fails   error
		options []inbox.Option
		outcome inbox.Outcome
		failed  int
		sent    []string
	}{
		"won": {
			answers: map[string][]driver.Value{"claim": {"won", "", "orders"}}, outcome: inbox.Handled, sent: []string{"BEGIN", text["claim"], "UPDATE effects", "COMMIT"},
		},
		"duplicate":   {answers: map[string][]driver.Value{"claim": {"handled", "", "orders"}}, outcome: inbox.Duplicate, sent: []string{"BEGIN", text["claim"], "ROLLBACK"}},
		"dead_letter": {answers: map[string][]driver.Value{"claim": {"dead_letter", "", "orders"}}, outcome: inbox.DeadLettered, sent: []string{"BEGIN", text["claim"], "ROLLBACK"}},
		"failed": {
			answers: map[string][]driver.Value{"claim": {"won", "", "orders"}, "count": {"failed", int64(2)}}, fails: errBoom, failed: 2,
			sent: []string{"BEGIN", text["claim"], "UPDATE effects", "ROLLBACK", text["count"]},
		},
		"failed for the last time": {
			answers: map[string][]driver.Value{"claim": {"won", "", "orders"}, "count": {"dead_letter", int64(inbox.DefaultMaxAttempts)}}, fails: errBoom, outcome: inbox.DeadLettered,
			sent: []string{"BEGIN", text["claim"], "UPDATE effects", "ROLLBACK", text["count"]},
		},
		"handled meanwhile": {
			answers: map[string][]driver.Value{"claim": {"won", "", "orders"}, "look": {"handled", "", "orders"}}, fails: errBoom, outcome: inbox.Duplicate,
			sent: []string{"BEGIN", text["claim"], "UPDATE effects", "ROLLBACK", text["count"], text["look"]},
		},
		"token": {
			answers: map[string][]driver.Value{"claim_token": {"won", "", "orders"}}, options: []inbox.Option{inbox.WithTokens()}, outcome: inbox.Handled,
			sent: []string{"BEGIN", text["claim_token"], "UPDATE effects", "COMMIT"},
		},
		"no token": {
			answers: map[string][]driver.Value{"claim_token": {"handled", "", "orders"}}, options: []inbox.Option{inbox.WithTokens()}, outcome: inbox.Duplicate,
			sent: []string{"BEGIN", text["claim_token"], "ROLLBACK"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, f := faked(t, test.answers)
			m := message()
			outcome, err := inbox.Handle(t.Context(), db, m, func(tx *gorm.DB) error {
				return errors.Join(tx.Exec("UPDATE effects").Error, test.fails)
			}, test.options...)
			if test.failed > 0 {
				var failed *inbox.FailedError
				require.ErrorAs(t, err, &failed)
				require.Equal(t, test.failed, failed.Attempts)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, test.outcome, outcome)
			require.Equal(t, test.sent, f.sent)
			for i, query := range f.sent { // each parameter that is in the text, and no other
				for place := 1; place < 12; place++ {
					require.Equal(t, place <= len(f.args[i]), strings.Contains(query, "@p"+string(rune('0'+place))) && place < 10, "%s: @p%d", query, place)
				}
			}
			if at := slices.Index(f.sent, text["count"]); at >= 0 {
				require.Equal(t, m.Payload, f.args[at][6].Value)
				require.Equal(t, int64(1), f.args[at][7].Value)
				require.Equal(t, int64(inbox.DefaultMaxAttempts), f.args[at][8].Value)
			}
		})
	}
}

// Keys, lists and the purge send the texts that are made for them.
func TestSQLServerStatementsWithoutAServer(t *testing.T) {
	t.Parallel()
	text := inbox.StatementsOf("sqlserver", inbox.DefaultTable)
	db, f := faked(t, nil)
	key := uuid.New()
	_, err := inbox.Redrive(t.Context(), db, consumer, "", []uuid.UUID{key}, inbox.WithTable(inbox.DefaultTable))
	require.NoError(t, err)
	require.Equal(t, []string{text["redrive"]}, f.sent)
	require.Equal(t, `["`+key.String()+`"]`, f.args[0][1].Value)
	f.sent = nil
	_, err = inbox.RedriveAll(t.Context(), db, consumer, "T.V.v1")
	require.NoError(t, err)
	_, err = inbox.DeadLetters(t.Context(), db, inbox.DeadLetterFilter{})
	require.NoError(t, err)
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return inbox.Expect(tx, consumer, "orders", []uuid.UUID{key}) }))
	purger, err := inbox.NewPurger(db, inbox.PurgeConfig{})
	require.NoError(t, err)
	_, err = purger.Purge(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{
		text["redrive_all"], text["dead_letter"], "BEGIN", text["expect"], "COMMIT",
		text["purge_handled"], text["purge_failed"], text["purge_dead_letter"], text["purge_redriven"], text["purge_expected"],
	}, f.sent)
}
