//go:build unix

package chaos_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/integration/chaos"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(worker.RoleVariable) != "" {
		os.Exit(worker.Main())
	}
	os.Exit(m.Run())
}

// needServers skips a test, or fails it where servers are required, when there is nothing to start
// or to use.
func needServers(t *testing.T, driver outbox.Dialect) {
	t.Helper()
	map[outbox.Dialect]func(testing.TB) string{
		outbox.Postgres: testenv.Postgres, outbox.MySQL: testenv.MySQL, outbox.SQLServer: testenv.SQLServer,
	}[driver](t)
	testenv.Redis(t)
}

// onDatabases runs a test with each kind of database, one after the other.
func onDatabases(t *testing.T, test func(t *testing.T, driver outbox.Dialect)) {
	t.Helper()
	for _, driver := range []outbox.Dialect{outbox.Postgres, outbox.MySQL, outbox.SQLServer} {
		t.Run(string(driver), func(t *testing.T) {
			needServers(t, driver)
			test(t, driver)
		})
	}
}

// writer gives what the rig says to the test's log.
type writer struct{ t *testing.T }

func (w writer) Write(text []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// show puts the report into the test's log.
func show(t *testing.T, report *chaos.Report) {
	t.Helper()
	var text strings.Builder
	report.Print(&text)
	t.Log(text.String())
}

// A minute of everything, with all brokers: processes killed and stopped, servers killed, networks
// cut, clocks off by minutes. FANOUT_TEST_SEED replays the schedule.
func TestRig(t *testing.T) {
	testenv.NeedLong(t)
	testenv.RabbitMQ(t)
	onDatabases(t, func(t *testing.T, driver outbox.Dialect) {
		report, err := chaos.Run(t.Context(), chaos.Options{
			Seed: uint64(testenv.Seed(t)), Database: string(driver), For: time.Minute, Every: 2 * time.Second, Rate: 10, Log: writer{t},
		})
		require.NoError(t, err)
		show(t, report)
		assert.Empty(t, report.Violations)
		assert.Greater(t, len(report.Performed), 5, "kinds of faults")
		for _, broker := range report.Brokers {
			assert.Greater(t, broker.Expected, 100, broker.Broker)
		}
		require.Len(t, report.Consumers, len(report.Brokers))
		for i, consumer := range report.Consumers {
			assert.EqualValues(t, report.Brokers[i].Expected, consumer.Handled, consumer.Broker)
		}
	})
}

// A few seconds of the same with true clocks, in processes of this program: nothing is built, and
// RabbitMQ, which takes long to start, is left out.
func TestRigSmoke(t *testing.T) {
	if testenv.Long() {
		t.Skip("TestRig does more")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	short := []chaos.Kind{ // the first of them ends within the run, whatever the seed
		chaos.Kill, chaos.Stop, chaos.Term, chaos.Reset, chaos.Delay, chaos.Throttle, chaos.CutRequests, chaos.CutAnswers, chaos.BlackHole,
		chaos.DatabaseKill, chaos.RedisKill, chaos.NATSKill,
	}
	onDatabases(t, func(t *testing.T, driver outbox.Dialect) {
		report, err := chaos.Run(t.Context(), chaos.Options{
			Seed: uint64(testenv.Seed(t)), Database: string(driver), For: 5 * time.Second, Every: time.Second, Rate: 10, Lease: 2 * time.Second,
			TrueClocks: true, Program: program, Log: writer{t}, Brokers: []string{scenario.Partner, scenario.PubSub, scenario.NATS}, Only: short,
		})
		require.NoError(t, err)
		show(t, report)
		assert.Empty(t, report.Violations)
		assert.NotEmpty(t, report.Performed)
		require.Len(t, report.Consumers, len(report.Brokers))
		for i, consumer := range report.Consumers {
			assert.Positive(t, report.Brokers[i].Expected, consumer.Broker)
			assert.EqualValues(t, report.Brokers[i].Expected, consumer.Handled, consumer.Broker)
		}
	})
}

// Half a minute of everything with rows that go as they are delivered, on one database a run.
func TestRigNotKept(t *testing.T) {
	testenv.NeedLong(t)
	testenv.RabbitMQ(t)
	onDatabases(t, func(t *testing.T, driver outbox.Dialect) {
		report, err := chaos.Run(t.Context(), chaos.Options{
			Seed: uint64(testenv.Seed(t)), Database: string(driver), For: 30 * time.Second, Every: time.Second, Rate: 10, NotKept: true, Log: writer{t},
		})
		require.NoError(t, err)
		show(t, report)
		assert.Empty(t, report.Violations)
		for i, consumer := range report.Consumers {
			assert.Greater(t, report.Brokers[i].Expected, 50, consumer.Broker)
			assert.EqualValues(t, report.Brokers[i].Expected, consumer.Handled, consumer.Broker)
		}
	})
}

// The rig notices what is broken on purpose: without that, its silence about the others would mean
// nothing. What is not tried here, is by make chaos ARGS="--broken".
func TestBroken(t *testing.T) {
	testenv.NeedLong(t)
	needServers(t, outbox.Postgres)
	testenv.RabbitMQ(t)
	tried := map[string]bool{"no-fence": true, "rows-of-their-own": true, "marks-unsent": true, "handles-twice": true, "keys-beside": true}
	for _, defect := range chaos.Defects() {
		if !tried[defect.Name] {
			continue
		}
		t.Run(defect.Name, func(t *testing.T) {
			report, err := chaos.Run(t.Context(), defect.Tailored(chaos.Options{Seed: uint64(testenv.Seed(t)), For: 12 * time.Second, Log: writer{t}}))
			require.NoError(t, err)
			show(t, report)
			assert.Empty(t, defect.Missed(report), defect.What)
		})
	}
}
