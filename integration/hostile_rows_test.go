package integration_test

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// words are the SQL of a server for what hostile rows are made of.
type words struct{ id, bytes, text func(string) string }

func (p *place) words() words {
	quoted := func(s string) string { return "'" + s + "'" }
	switch p.driver {
	case outbox.MySQL:
		return words{func(s string) string { return "UNHEX(REPLACE('" + s + "', '-', ''))" }, quoted, quoted}
	case outbox.SQLServer:
		return words{quoted, func(s string) string { return "CONVERT(varbinary(max), '" + s + "')" }, quoted}
	default:
		return words{quoted, func(s string) string { return "convert_to('" + s + "', 'UTF8')" }, quoted}
	}
}

// What becomes of a hostile row.
const (
	fateRefused   = "refused"   // by the table
	fateAbandoned = "abandoned" // alone, with the reason
	fatePublished = "published"
	fateWaits     = "waits" // by itself, as it says or as nobody delivers it
)

// A hostileRow is a row of a writer, and its possible ends.
type hostileRow struct {
	columns map[string]string
	fates   []string
}

// hostileRows are named for the odd thing about each.
func hostileRows(w words) map[string]hostileRow {
	type row = hostileRow
	past, future := "'2001-01-01 00:00:00'", "'9998-01-01 00:00:00'"
	lease := func(more map[string]string) map[string]string {
		all := map[string]string{"status": "'processing'", "locked_until": past, "lock_token": w.id("6f9619ff-8b86-d011-b42d-00c04fc964ff")}
		maps.Copy(all, more)
		return all
	}
	of := func(column, value string) map[string]string { return map[string]string{column: value} }
	return map[string]row{
		"a negative count of crashes":            {of("crashes", "-2"), []string{fateRefused}},
		"the largest count of crashes":           {lease(of("crashes", "2147483647")), []string{fateRefused}},
		"a count of crashes at the bound":        {lease(of("crashes", "1048575")), []string{fateAbandoned, fatePublished}},
		"nine crashes":                           {lease(of("crashes", "9")), []string{fateAbandoned, fatePublished}},
		"a negative count of attempts":           {of("attempts", "-1"), []string{fateRefused}},
		"the largest count of attempts":          {of("attempts", "2147483647"), []string{fateRefused}},
		"a count of attempts at the bound":       {of("attempts", "1048575"), []string{fateAbandoned}},
		"published without a time":               {of("status", "'published'"), []string{fateRefused}},
		"a status that there is not":             {of("status", "'done'"), []string{fateRefused}},
		"claimed without a lease":                {of("status", "'processing'"), []string{fateRefused}},
		"a claim of somebody who is gone":        {lease(nil), []string{fatePublished}},
		"created beyond what JSON can say":       {of("created_at", "'12026-01-01 00:00:00'"), []string{fateRefused}},
		"created long ago":                       {of("created_at", "'1003-01-01 00:00:00'"), []string{fatePublished, fateRefused}},
		"not before the end of time":             {of("available_at", future), []string{fateRefused}},
		"a backoff until the end of time":        {of("locked_until", future), []string{fateWaits}},
		"expired long ago":                       {of("expires_at", past), []string{fateAbandoned}},
		"headers that are no JSON":               {of("headers", w.text("x")), []string{fateAbandoned}},
		"headers of 70 kB":                       {of("headers", w.text(`{"a":"`+strings.Repeat("x", 70_000)+`"}`)), []string{fateRefused}},
		"headers that shadow a column":           {of("headers", w.text(`{"id":"x"}`)), []string{fateAbandoned}},
		"headers that are ambiguous":             {of("headers", w.text(`{"a":"1","A":"2","a":"3"}`)), []string{fateAbandoned}},
		"a payload of 17 MB":                     {of("payload", w.bytes(strings.Repeat("x", 17_000_000))), []string{fateAbandoned, fateRefused}},
		"no payload":                             {of("payload", w.bytes("")), []string{fatePublished}},
		"a key of 513 bytes":                     {of("ordering_key", w.text(strings.Repeat("k", 513))), []string{fateRefused}},
		"an empty key":                           {of("ordering_key", "''"), []string{fateRefused}},
		"a key of blanks":                        {of("ordering_key", "'  '"), []string{fatePublished}},
		"no stream":                              {of("stream", "''"), []string{fateAbandoned}},
		"a stream of 600 bytes":                  {of("stream", w.text(strings.Repeat("s", 600))), []string{fateRefused}},
		"no type":                                {of("type", "''"), []string{fateAbandoned}},
		"a content type that is none":            {of("content_type", "'nonsense'"), []string{fateAbandoned}},
		"an invented broker":                     {of("target_broker", "'invented'"), []string{fateWaits}},
		"no broker":                              {of("target_broker", "''"), []string{fateRefused}},
		"a broker with a blank at its end":       {of("target_broker", "'default '"), []string{fateWaits, fateRefused}},
		"a broker of 200 bytes":                  {of("target_broker", w.text(strings.Repeat("b", 200))), []string{fateRefused}},
		"an error of a megabyte":                 {of("last_error", w.text(strings.Repeat("e", 1_000_000))), []string{fateRefused}},
		"an error that is no JSON":               {of("last_error", "'by hand'"), []string{fatePublished}},
		"a worker of a thousand bytes":           {of("locked_by", w.text(strings.Repeat("w", 1000))), []string{fateRefused}},
		"a broker's id of 10 kB":                 {of("broker_message_id", w.text(strings.Repeat("i", 10_000))), []string{fateRefused}},
		"more urgent than there is":              {of("priority", "2147483647"), []string{fatePublished}},
		"less urgent than there is":              {of("priority", "-2147483648"), []string{fatePublished}},
		"a message id of zeros":                  {of("message_id", w.id(uuid.Nil.String())), []string{fatePublished}},
		"the last id but one that there is":      {of("id", "9223372036854775806"), []string{fatePublished, fateRefused}},
		"an id below all others":                 {of("id", "-9223372036854775808"), []string{fatePublished, fateRefused}},
		"a row that another relay has set aside": {of("isolated", "TRUE"), []string{fatePublished, fateRefused}},
	}
}

// Rows with whatever a writer can put into them cost themselves and nothing else: the relay
// goes on, delivers all others in order and at the first attempt, and finishes those, or they wait alone.
func TestHostileRows(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p *place) {
		t.Helper()
		testHostileRows(t, p, p.db, hostileRows(p.words()))
	})
}

// So do rows of a session that lets its server cut and guess, as MySQL does where sql_mode is not strict, and that
// passes over the CHECKs, as MariaDB allows.
func TestHostileSession(t *testing.T) {
	t.Parallel()
	p := newPlace(t, outbox.MySQL)
	conn, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SET SESSION sql_mode = '' /*M! , check_constraint_checks = 0 */")
	require.NoError(t, err)
	rows := hostileRows(p.words())
	delete(rows, "a payload of 17 MB") // the server would end the session
	for _, column := range []string{"created_at", "available_at", "expires_at", "locked_until"} {
		row := rows["no type"]
		row.columns, row.fates = map[string]string{column: "'0000-00-00'"}, []string{fateAbandoned, fatePublished}
		rows["a zero date in "+column] = row
	}
	for name, row := range rows {
		if slices.Contains(row.fates, fateRefused) {
			row.fates = append(row.fates, fateAbandoned, fatePublished)
		}
		switch name {
		case "no broker", "a broker of 200 bytes", "a status that there is not", "published without a time", "not before the end of time":
			row.fates = append(row.fates, fateWaits)
		case "a broker with a blank at its end": // which the server takes for the broker without it
			row.fates = []string{fateRefused, fateAbandoned}
		}
		rows[name] = row
	}
	b := testHostileRows(t, p, conn, rows)
	// An operator sets aside what no relay has met.
	_, err = conn.ExecContext(t.Context(), "INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, ordering_key, attempts) VALUES (UUID(), 'partner', 's', 'T', '', '', 2000000)")
	if err == nil { // on MariaDB
		abandoned := b.run("messages", "abandon", "--broker", "partner", "--reason", "spoiled")
		assert.Equal(t, "default: 1 row abandoned\n", abandoned.stdout, abandoned.stderr)
	}
}

func testHostileRows(t *testing.T, p *place, session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, rows map[string]hostileRow,
) *bench {
	t.Helper()
	const good = 500
	b := newBench(p)
	require.Zero(t, b.run("migrate").code)
	w := p.words()
	names := slices.Sorted(maps.Keys(rows))
	fate := map[string]string{}
	for _, name := range names {
		if p.driver != outbox.Postgres && rows[name].columns["id"] != "" {
			continue // elsewhere an id is the primary key, and what counts it on would have an end
		}
		columns := map[string]string{
			"message_id": w.id(uuid.NewString()), "target_broker": "'default'", "stream": "'" + b.stream + ".hostile'", "type": "'T'", "payload": w.bytes("{}"),
		}
		maps.Copy(columns, rows[name].columns)
		keys := slices.Sorted(maps.Keys(columns))
		values := make([]string, len(keys))
		for i, key := range keys {
			values[i] = columns[key]
		}
		_, err := session.ExecContext(t.Context(), "INSERT INTO outbox_messages ("+strings.Join(keys, ", ")+", tenant_id) VALUES ("+strings.Join(values, ", ")+", '"+name+"')")
		if fate[name] = fateWaits; err != nil {
			fate[name] = fateRefused
		}
	}
	b.insert(good)
	r := b.relay()
	eventually(t, func() bool { return b.count("status = 'published' AND tenant_id IS NULL") == good })
	b.checkOrder(good)
	assert.Equal(t, good, b.count("tenant_id IS NULL AND attempts = 1"), "nobody else pays")
	mayWait := 0
	for _, name := range names {
		if fate[name] == fateWaits && slices.Contains(rows[name].fates, fateWaits) {
			mayWait++
		}
	}
	eventually(t, func() bool { return b.count("finished_at IS NULL") == mayWait })
	for _, name := range names {
		if fate[name] == "" {
			continue
		}
		if fate[name] == fateWaits {
			for _, status := range []string{fateAbandoned, fatePublished} {
				if b.count("status = '"+status+"' AND tenant_id = '"+name+"'") == 1 {
					fate[name] = status
				}
			}
		}
		assert.Contains(t, rows[name].fates, fate[name], name)
		t.Logf("%-10s %s", fate[name], name)
	}
	assert.Equal(t, b.count("status = 'abandoned'"), b.count("status = 'abandoned' AND last_error LIKE '{\"class\":%'"), "each says why")
	assert.NotContains(t, r.log.String(), "panic")
	assert.Zero(t, b.run("validate").code)
	assert.Zero(t, b.run("status").code)
	code, _ := r.stop()
	assert.Zero(t, code)
	return b
}
