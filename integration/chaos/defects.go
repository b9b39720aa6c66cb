//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// Defect is a deliberate defect of Fanout, made by small edits of its source. The rig must detect
// it.
type Defect struct {
	Name string
	What string
	// Rules are what the rig must report, each of them, and at each of the brokers At where they are
	// given.
	Rules []Rule
	At    []string

	edits   []edit
	brokers []string         // external ones of the run; default: partner, pubsub
	options func(o *Options) // for a run that reveals it soon
}

// withoutFence are the edits of a defect: outcomes and renewals do without the token.
var withoutFence = []edit{
	{
		"outbox/postgres/sql/mark_published.sql",
		" AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL\n" +
			"   AND m.id BETWEEN $4 AND $5 AND m.id = d.id\n   AND m.lock_token = $3 AND m.status = 'processing'",
		"\n   AND m.id BETWEEN $4 AND $5 AND m.id = d.id AND $3::uuid IS NOT NULL",
	},
	{
		"outbox/postgres/sql/mark_other.sql",
		" AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL\n" +
			"   AND m.id BETWEEN $4 AND $5 AND m.id = o.id\n   AND m.lock_token = $3 AND m.status = 'processing'",
		"\n   AND m.id BETWEEN $4 AND $5 AND m.id = o.id AND $3::uuid IS NOT NULL",
	},
	{"outbox/postgres/sql/mark_other.sql", "   SET status       = o.status\n", "   SET status       = o.status, published_at = NULL\n"},
	{"outbox/postgres/sql/renew.sql", "\n   AND lock_token = $3 AND status = 'processing'", "\n   AND $3::uuid IS NOT NULL AND status = 'processing'"},
	{"outbox/mysql/sql/mark_published.sql", " AND lock_token = UNHEX(@token) AND status = 'processing'", " AND @token IS NOT NULL"},
	{"outbox/mysql/sql/mark_other.sql", " WHERE m.lock_token = UNHEX(@token) AND m.status = 'processing'", " WHERE @token IS NOT NULL"},
	{"outbox/mysql/sql/mark_other.sql", "     , m.status       = o.status\n", "     , m.published_at = NULL, m.status = o.status\n"},
	{"outbox/mysql/sql/renew.sql", "\n   AND lock_token = UNHEX(@token) AND status = 'processing'", "\n   AND @token IS NOT NULL AND status = 'processing'"},
}

// Defects returns all of them.
func Defects() []Defect { return append(outboxDefects(), brokerDefects()...) }

// outboxDefects are those of the outbox, of relays and of the inbox.
func outboxDefects() []Defect {
	return []Defect{
		{
			Name: "no-fence", What: "outcomes are written and leases renewed without a look at whose the row is", Rules: []Rule{Fence},
			edits: withoutFence,
			options: func(o *Options) { // relays that are stopped with claimed rows
				o.Only, o.Every, o.Lease, o.Slow = []Kind{Stop}, 500*time.Millisecond, 2*time.Second, 120*time.Millisecond
			},
		},
		{
			Name: "claims-in-hand", What: "a claim takes what others have claimed", Rules: []Rule{Fence},
			edits: []edit{
				{"internal/core/claim.go", "clear: !row.Waits,", "clear: !row.Waits || row.Leased,"},
				{"internal/core/claim.go", "claimed: row.Leased && row.Waits,", "claimed: false,"},
				{"outbox/postgres/sql/take.sql", "       AND (locked_until IS NULL OR locked_until <= statement_timestamp())\n", ""},
				{"outbox/postgres/sql/take.sql", "       AND (m.locked_until IS NULL OR m.locked_until <= statement_timestamp())\n", ""},
				{"outbox/mysql/sql/take.sql", "   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))\n", ""},
			},
			options: func(o *Options) { // rows that are in a relay's hands for long
				o.Only, o.Slow = []Kind{Delay}, 120*time.Millisecond
			},
		},
		{
			Name: "rows-of-their-own", What: "the rows of a transaction are written in another one, whatever becomes of it", Rules: []Rule{Phantom},
			edits: []edit{{
				"gormplugin/tx.go", "\tt.journal.End()\n\tdefer t.journal.RolledBack()\n\treturn t.undo()\n",
				"\tif pool, err := t.GetDBConn(); err == nil {\n\t\tflush, _ := t.journal.Collect(false)\n\t\t_, _ = t.plugin.write(t.ctx, t.inserter, pool, flush, nil)\n\t}\n" +
					"\tt.journal.End()\n\tdefer t.journal.RolledBack()\n\treturn t.undo()\n",
			}},
			options: func(o *Options) { o.Only = []Kind{Kill} },
		},
		{
			Name: "marks-unsent", What: "a row is published before the broker has answered, and whatever it answers", Rules: []Rule{Lost, Unconfirmed},
			At: []string{scenario.Internal, scenario.RabbitMQ, scenario.NATS}, brokers: []string{scenario.RabbitMQ, scenario.NATS},
			edits: []edit{{
				"outbox/relay/classify.go", "\tcase class == \"\":\n\t\treturn",
				"\tcase class == \"\" || class == brokers.ClassUnavailable:\n\t\treturn",
			}},
			options: func(o *Options) {
				o.Only, o.Every = []Kind{Reset, BlackHole, RedisKill, RabbitMQKill, NATSKill}, time.Second
			},
		},
		{
			Name: "overtaking", What: "a claim takes later rows of a key while an earlier one waits or is in another's hands", Rules: []Rule{OutOfOrder},
			edits: []edit{
				{
					"internal/core/claim.go", "\tv.clear, v.waits = v.clear && before.clear, v.waits || before.waits\n" +
						"\tv.lowest, v.highest = min(v.lowest, before.lowest), max(v.highest, before.highest)\n", "\tv.waits = v.waits || before.waits\n",
				},
				{"internal/core/claim.go", "claimed[row.Key] = true", "claimed[row.Key] = false"},
				{"internal/core/claim.go", "v.clear, v.waits = v.clear && !behind, v.waits || behind", "_ = behind"},
			},
			options: func(o *Options) { // few keys, and messages that are long on their way while later ones of their key are not
				o.Only, o.Keys, o.Slow = []Kind{Stop}, 6, 120*time.Millisecond
			},
		},
		{
			Name: "handles-twice", What: "the inbox lets a message be handled that was handled before", Rules: []Rule{Projection},
			edits: []edit{
				{"inbox/sql/postgres/claim.sql", " WHERE m.status IN ('failed', 'redriven', 'expected')", " WHERE m.status IS NOT NULL"},
				{"inbox/sql/mysql/claim.sql", "LAST_INSERT_ID(CASE WHEN {{free}} THEN 1 ELSE 2 END)", "LAST_INSERT_ID(1)"},
			},
			options: func(o *Options) { o.Only, o.Every = []Kind{Kill, Stop, CutAnswers}, 400*time.Millisecond },
		},
		{
			Name: "confirms-first", What: "a consumer confirms a message at the broker before it is handled", Rules: []Rule{Projection},
			edits: []edit{{
				"inbox/consumer/work.go", "\ta := runner.Attempt(ctx, e.Message, e.Past)\n",
				"\te.first.Ack()\n\ta := runner.Attempt(ctx, e.Message, e.Past)\n",
			}},
			options: func(o *Options) { // databases that are far away, or gone, when the consumer is killed
				o.Only, o.Every = []Kind{Kill, DatabaseKill, Delay}, 300*time.Millisecond
			},
		},
	}
}

// Tailored returns options for a short run that reveals the defect.
func (d *Defect) Tailored(o Options) Options {
	o.Broken, o.TrueClocks = d.Name, true
	if len(o.Brokers) == 0 {
		o.Brokers = d.brokers
	}
	if len(o.Brokers) == 0 {
		o.Brokers = []string{scenario.Partner, scenario.PubSub}
	}
	fallback(&o.For, 20*time.Second)
	fallback(&o.Drain, 20*time.Second)
	d.options(&o)
	return o
}

// Missed names what a report of a run with the defect should have, and has not.
func (d *Defect) Missed(r *Report) (missed []string) {
	for _, rule := range d.Rules {
		if len(d.At) == 0 && !r.Violated(rule) {
			missed = append(missed, fmt.Sprintf("no violation %q", rule))
		}
		for _, broker := range d.At {
			if !slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == rule && v.Broker == broker }) {
				missed = append(missed, fmt.Sprintf("no violation %q at %s", rule, broker))
			}
		}
	}
	return missed
}

// defectEdits returns the edits of a defect; none for "".
func defectEdits(name string) ([]edit, error) {
	if name == "" {
		return nil, nil
	}
	known := []string{}
	for _, d := range Defects() {
		if d.Name == name {
			return d.edits, nil
		}
		known = append(known, d.Name)
	}
	return nil, fmt.Errorf("chaos: there is no defect %q; there are %s", name, strings.Join(known, ", "))
}
