package deploy_test

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alerts reads the rules as Prometheus does.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile("prometheus/fanout.rules.yaml")
	require.NoError(t, err)
	groups, problems := rulefmt.Parse(text, false, model.UTF8Validation)
	require.Empty(t, problems)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

func TestRulesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	found := scrape(t)
	documentation, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	for _, rule := range alerts(t) {
		found.check(t, rule.Expr)
		assert.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		assert.Contains(t, string(documentation), "| `"+rule.Alert+"` | "+rule.Labels["severity"]+" |")
	}
	for _, name := range regexp.MustCompile("\\| `(Fanout[A-Za-z]+)`").FindAllStringSubmatch(string(documentation), -1) {
		assert.True(t, slices.ContainsFunc(alerts(t), func(r rulefmt.Rule) bool { return r.Alert == name[1] }), "%s is documented only", name[1])
	}
}

// Series of one minute's distance. Two relays report the same rows; what they do is their own.
const (
	at  = `{database="d",broker="b",instance="1"} `
	at2 = `{database="d",broker="b",instance="2"} `
)

// Each alert fires when it should, after its time, once for each broker however many relays report
// it, and not otherwise.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const rows = "fanout_outbox_rows_"
	alive := "fanout_outbox_breaker_state" + at + "0x120\n"
	both := func(name, values string) string { return name + at + values + "\n" + name + at2 + values + "\n" }
	published := func(values string) string { return both("fanout_outbox_messages_published_total", values) }
	lag := func(values string) string { return both("fanout_outbox_lag_seconds", values) }
	paused := func(values string) string { return both("fanout_outbox_broker_paused", values) }
	tenants := func(state, values string) (series string) {
		for _, instance := range []string{"1", "2"} {
			series += `fanout_outbox_tenants{state="` + state + `",instance="` + instance + `"} ` + values + "\n"
		}
		return series
	}
	none := both(rows+"scheduled", "0x60") + both(rows+"held", "0x60")
	const up = "\n" + `fanout_inbox_broker_up{consumer="c",instance="1"} 1x120`
	const consumer = `{consumer="c",source="s",instance="1"} `
	handled := func(outcome, values string) string {
		name, series := "fanout_inbox_messages_done_total", ""
		for _, instance := range []string{"1", "2"} {
			series += name + `{consumer="c",source="s",` + outcome + `,instance="` + instance + `"} ` + values + "\n"
		}
		return series
	}
	cases := map[string][]struct {
		name, series string
		after        time.Duration // it fires from then on; 0: it never does
	}{
		"FanoutMessagesLate": {
			{"at the threshold", both("fanout_outbox_lag_seconds", "60x60"), 0},
			{"above", both("fanout_outbox_lag_seconds", "61x60"), time.Minute},
			{"for a moment", both("fanout_outbox_lag_seconds", "0 0 100 0x60"), 0},
			{"grows", both("fanout_outbox_lag_seconds", "0+30x60"), 4 * time.Minute},
		},
		"FanoutMessagesVeryLate": {
			{"at the threshold", both("fanout_outbox_lag_seconds", "600x60"), 0},
			{"above", both("fanout_outbox_lag_seconds", "601x60"), time.Minute},
		},
		"FanoutBacklog": {
			{"at the threshold", both(rows+"pending", "600x60") + both(rows+"failed", "400x60") + none, 0},
			{"above, with those that have failed", both(rows+"pending", "600x60") + both(rows+"failed", "401x60") + none, 2 * time.Minute},
			{"for a moment", both(rows+"pending", "0 5000 5000 0x60") + both(rows+"failed", "0x60") + none, 0},
			{"scheduled rows", both(rows+"pending", "1500x60") + both(rows+"failed", "0x60") + both(rows+"scheduled", "1500x60") + both(rows+"held", "0x60"), 0},
			{"followers of a blocked key", both(rows+"pending", "1200x60") + both(rows+"failed", "0x60") + both(rows+"scheduled", "0x60") + both(rows+"held", "1200x60"), 0},
			{"while the broker is paused", both(rows+"pending", "3000x30 3000x30") + both(rows+"failed", "0x60") + none + paused("1x30 0x30"), 33 * time.Minute},
			{"beside both", both(rows+"pending", "3701x60") + both(rows+"failed", "0x60") + both(rows+"scheduled", "1500x60") + both(rows+"held", "1200x60"), 2 * time.Minute},
		},
		"FanoutBacklogLarge": {
			{"at the threshold", both(rows+"pending", "10000x60") + both(rows+"failed", "0x60") + none, 0},
			{"above", both(rows+"pending", "0 10001x60") + both(rows+"failed", "0x60") + none, 3 * time.Minute},
			{"while the broker is paused", both(rows+"pending", "20000x60") + both(rows+"failed", "0x60") + none + paused("1x60"), 0},
		},
		"FanoutMessagesAbandoned": {
			{"none", both(rows+"unacknowledged", "0x60"), 0},
			{"one", both(rows+"unacknowledged", "0 0 1x60"), 2 * time.Minute},
			{"acknowledged", both(rows+"abandoned", "7x60") + both(rows+"unacknowledged", "0x60"), 0},
			{"the next one", both(rows+"abandoned", "7x10 8x50") + both(rows+"unacknowledged", "0x10 1x50"), 11 * time.Minute},
		},
		"FanoutKeysBlocked": {
			{"none", both("fanout_outbox_keys_blocked", "0x60"), 0},
			{"some", both("fanout_outbox_keys_blocked", "0 3x60"), 2 * time.Minute},
			{"for a moment", both("fanout_outbox_keys_blocked", "0 3 0x60"), 0},
		},
		"FanoutRowsStranded": {
			{"none", both(rows+"stranded", "0x60"), 0},
			{"one, as one relay has found", rows + "stranded" + at + "0x60\n" + rows + "stranded" + at2 + "0 0 1x60\n", 2 * time.Minute},
		},
		"FanoutMessagesFailing": {
			{"none", both(rows+"failed", "0x60"), 0},
			{"for half an hour and more", both(rows+"failed", "2x60"), 30 * time.Minute},
			{"now and then", both(rows+"failed", "2x10 0 2x10 0 2x10 0 2x10 0 2x10"), 0},
		},
		"FanoutDestinationUnavailable": {
			{"none", both("fanout_outbox_destinations_unavailable", "0x60"), 0},
			{"one, while the lag stays low", both("fanout_outbox_destinations_unavailable", "0 1x60") + lag("0.014x60"), 2 * time.Minute},
			{"at one relay", "fanout_outbox_destinations_unavailable" + at + "0x60\nfanout_outbox_destinations_unavailable" + at2 + "1x60\n", time.Minute},
			{"for a moment", both("fanout_outbox_destinations_unavailable", "0 1 0x60"), 0},
		},
		"FanoutBreakerOpen": {
			{"closed", both("fanout_outbox_breaker_state", "0x60"), 0},
			{"open", both("fanout_outbox_breaker_state", "0 2x60"), 2 * time.Minute},
			{"open and half-open in turn", both("fanout_outbox_breaker_state", "2 1 2 1 2 1 2x60"), time.Minute},
			{"at one relay", "fanout_outbox_breaker_state" + at + "0x60\nfanout_outbox_breaker_state" + at2 + "2x60\n", time.Minute},
			{"for a moment", both("fanout_outbox_breaker_state", "0 2 0x60"), 0},
		},
		"FanoutNoDrain": {
			{"nothing waits", lag("0x60") + published("100x60") + paused("0x60"), 0},
			{"waits, and nothing goes", lag("300x60") + published("100x60") + paused("0x60"), 5 * time.Minute},
			{"waits, and something goes", lag("300x60") + published("0+10x60") + paused("0x60"), 0},
			{"it stops to go", lag("300x60") + published("0+10x10 100x50") + paused("0x60"), 19 * time.Minute},
			{"one relay works", lag("300x60") + "fanout_outbox_messages_published_total" + at + "5x60\nfanout_outbox_messages_published_total" + at2 + "0+10x60\n", 0},
			{"none has ever published", lag("300x60"), 5 * time.Minute},
			{"paused", lag("300x60") + published("100x60") + paused("1x60"), 0},
			{
				"another system publishes to a broker of this name",
				`fanout_outbox_lag_seconds{database="d",broker="b",job="shop",instance="1"} 300x60` + "\n" +
					`fanout_outbox_messages_published_total{database="d",broker="b",job="shop",instance="1"} 7x60` + "\n" +
					`fanout_outbox_messages_published_total{database="d",broker="b",job="billing",instance="1"} 0+10x60`, 5 * time.Minute,
			},
		},
		"FanoutBrokerPaused": {
			{"no", paused("0x120"), 0},
			{"yes", paused("1x120"), time.Hour},
			{"for 59 minutes", paused("1x58 0x60"), 0},
		},
		"FanoutBrokerUnconfigured": {
			{"a configured one", both(rows+"pending", "5x60") + both(rows+"failed", "0x60") + both("fanout_outbox_breaker_state", "0x60"), 0},
			{"its breaker is open", both(rows+"pending", "5x60") + both(rows+"failed", "0x60") + both("fanout_outbox_breaker_state", "2x60"), 0},
			{"no relay has it", both(rows+"pending", "5x60") + both(rows+"failed", "0x60"), 5 * time.Minute},
			{"no relay has it, and nothing waits", both(rows+"pending", "0x60") + both(rows+"failed", "0x60"), 0},
		},
		"FanoutDatabaseSilent": {
			{"answers", `fanout_outbox_database_up{database="d",instance="1"} 1x60`, 0},
			{"does not", `fanout_outbox_database_up{database="d",instance="1"} 0x60`, 2 * time.Minute},
			{"one relay gets answers", `fanout_outbox_database_up{database="d",instance="1"} 0x60` + "\n" + `fanout_outbox_database_up{database="d",instance="2"} 1x60`, 0},
		},
		"FanoutInboxDeadLetters": {
			{"none", handled(`outcome="dead_lettered"`, "0x60"), 0},
			{"one", handled(`outcome="dead_lettered"`, "0 0 0 0 0 1x15 1x40"), 5 * time.Minute},
			{"handled", handled(`outcome="handled"`, "0+5x60"), 0},
		},
		"FanoutInboxForwarded": {
			{"none", "fanout_inbox_messages_forwarded_total" + consumer + "7x60", 0},
			{"one", "fanout_inbox_messages_forwarded_total" + consumer + "0 0 0 1x57", 3 * time.Minute},
		},
		"FanoutInboxUnknownType": {
			{"none", `fanout_inbox_messages_unknown_total{consumer="c",type="t",instance="1"} 7x120` + up, 0},
			{"more of one", `fanout_inbox_messages_unknown_total{consumer="c",type="t",instance="1"} 7x40 8x80` + up, 41 * time.Minute},
			{"a first one", `fanout_inbox_messages_unknown_total{consumer="c",type="t",instance="1"} _x30 1x90` + up, 30 * time.Minute},
		},
		"FanoutConsumerGone": {
			{"it reports", `fanout_inbox_broker_up{consumer="c",instance="1"} 1x120`, 0},
			{"its broker does not answer", `fanout_inbox_broker_up{consumer="c",instance="1"} 0x120`, 0},
			{"it crashed", `fanout_inbox_broker_up{consumer="c",instance="1"} 1x10 stale`, 16 * time.Minute},
			{"it was replaced", `fanout_inbox_broker_up{consumer="c",instance="1"} 1x10 stale` + "\n" + `fanout_inbox_broker_up{consumer="c",instance="2"} _x12 1x110`, 0},
			{"one of two crashed", `fanout_inbox_broker_up{consumer="c",instance="1"} 1x10 stale` + "\n" + `fanout_inbox_broker_up{consumer="c",instance="2"} 1x120`, 0},
		},
		"FanoutConsumerBehind": {
			{"at the threshold", `fanout_inbox_behind_seconds{consumer="c",instance="1"} 600x120`, 0},
			{"it died, and messages go on", `fanout_inbox_behind_seconds{consumer="c",instance="1"} 0x10 0+60x110`, 27 * time.Minute},
			{"after an outage", `fanout_inbox_behind_seconds{consumer="c",instance="1"} 0 900 900 0x60`, 0},
		},
		"FanoutInboxSilent": {
			{"it answers", `fanout_inbox_up{consumer="c",instance="1"} 1x60`, 0},
			{"it answers one of two relays", `fanout_inbox_up{consumer="c",instance="1"} 0x60` + "\n" + `fanout_inbox_up{consumer="c",instance="2"} 1x60`, 0},
			{"it does not", `fanout_inbox_up{consumer="c",instance="1"} 0x60`, 5 * time.Minute},
		},
		"FanoutInboxLate": {
			{"at the threshold", "fanout_inbox_pending_age_seconds" + consumer + "600x60", 0},
			{"above", "fanout_inbox_pending_age_seconds" + consumer + "601x60", 5 * time.Minute},
			{"after an outage", "fanout_inbox_pending_age_seconds" + consumer + "0 900 900 0x60", 0},
		},
		"FanoutRelayGone": {
			{"it runs", `fanout_outbox_database_up{database="d",instance="1"} 1x120`, 0},
			{"its database does not answer", `fanout_outbox_database_up{database="d",instance="1"} 0x120`, 0},
			{
				"it was killed, and those of other databases and systems run",
				`fanout_outbox_database_up{database="d",job="shop",instance="1"} 1x10 stale` + "\n" + `fanout_outbox_database_up{database="e",job="shop",instance="2"} 1x120` + "\n" +
					`fanout_outbox_database_up{database="d",job="billing",instance="3"} 1x120`, 16 * time.Minute,
			},
			{"it was replaced", `fanout_outbox_database_up{database="d",instance="1"} 1x10 stale` + "\n" + `fanout_outbox_database_up{database="d",instance="2"} _x12 1x110`, 0},
			{"a tenant fell asleep", `fanout_outbox_database_up{database="t",tenant="true",instance="1"} 1x10 stale` + "\n" + `fanout_outbox_tenants{state="asleep",instance="1"} 1x120`, 0},
			{
				"that of tenants was killed, and another system's runs",
				`fanout_outbox_tenants{state="asleep",job="shop",instance="1"} 7x10 stale` + "\n" + `fanout_outbox_tenants{state="awake",job="shop",instance="1"} 0x10 stale` + "\n" +
					`fanout_outbox_tenants{state="asleep",job="billing",instance="2"} 7x120`, 16 * time.Minute,
			},
		},
		"FanoutTenantFailing": {
			{"none", tenants("failing", "0x60") + tenants("asleep", "7x60"), 0},
			{"some, as two relays see them", tenants("failing", "0 3x60"), 11 * time.Minute},
			{"as one relay sees it", `fanout_outbox_tenants{state="failing",instance="1"} 0x60` + "\n" + `fanout_outbox_tenants{state="failing",instance="2"} 1x60`, 10 * time.Minute},
			{"for nine minutes", tenants("failing", "3x9 0x50"), 0},
		},
		"FanoutTenantsWait": {
			{"none", tenants("waiting", "0x60") + tenants("awake", "20x60"), 0},
			{"some, as two relays see them", tenants("waiting", "0 3x60"), 31 * time.Minute},
			{"in a peak", tenants("waiting", "3x29 0x60"), 0},
		},
		"FanoutNoRelay": {
			{"one", alive, 0},
			{"one whose tenants all sleep", tenants("asleep", "7x60"), 0},
			{"never", both("fanout_outbox_broker_paused", "0x60"), 5 * time.Minute},
		},
	}
	all, found := alerts(t), scrape(t)
	var names []string
	for _, rule := range all {
		names = append(names, rule.Alert)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(cases)), names, "each alert is tested")
	for _, rule := range all {
		for _, c := range cases[rule.Alert] {
			t.Run(rule.Alert+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				for line := range strings.SplitSeq(strings.TrimSpace(c.series), "\n") { // a test of series that there are not proves nothing
					name, _, _ := strings.Cut(line, "{")
					require.Contains(t, found, name)
				}
				first, most := fires(t, &rule, c.series)
				assert.Equal(t, c.after, first)
				assert.LessOrEqual(t, most, 1, "once for a broker")
				if c.name == "none has ever published" || c.after > 0 {
					assert.Equal(t, 1, most)
				}
			})
		}
	}
}

// fires evaluates a rule every minute for two hours, as Prometheus does. It returns when it fired
// first, 0 when it never did, and how many alerts it had at a time.
func fires(t *testing.T, rule *rulefmt.Rule, series string) (first time.Duration, most int) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n  "))
	defer storage.Close()
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000), storage)
	expression, err := parser.ParseExpr(rule.Expr)
	require.NoError(t, err)
	alert := rules.NewAlertingRule(rule.Alert, expression, time.Duration(rule.For), 0, labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	end := 60
	if strings.Contains(series, "x120") || strings.Contains(series, "1x58") {
		end = 118
	}
	for minute := range end {
		after := time.Duration(minute) * time.Minute
		_, err := alert.Eval(t.Context(), 0, time.Unix(0, 0).Add(after), query, nil, 0)
		require.NoError(t, err)
		firing := 0
		for _, active := range alert.ActiveAlerts() {
			if active.State == rules.StateFiring {
				firing++
				assert.NotContains(t, active.Annotations.Get("summary"), "<no value>")
				assert.NotContains(t, active.Annotations.Get("description"), "<error")
			}
		}
		if firing > 0 && first == 0 {
			first = after
		}
		most = max(most, firing)
	}
	return first, most
}
