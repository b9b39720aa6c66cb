package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestMain(m *testing.M) {
	if code, ok := consumerMain(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func TestDemo(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Zero(t, command(t.Context(), []string{"--orders", "60", "--json", "--port", "0"}, nil, &stdout, &stderr), &stderr)
	var result Result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &result), "one object and nothing else")
	assert.Equal(t, 60, result.Orders)
	assert.Equal(t, 150, result.Events, "two events per order, and one more for every second")
	assert.Equal(t, map[string]int{"default": 150, "partner": 90, "carrier": 30}, result.Delivered)
	assert.Equal(t, map[string]map[outbox.Status]int64{
		"default": {outbox.StatusPublished: 150}, "partner": {outbox.StatusPublished: 90}, "carrier": {outbox.StatusPublished: 30},
	}, result.Rows)
	assert.Zero(t, result.Lost)
	want := map[string]Projection{
		"default": {OrdersPlaced: 60, RevenueCents: 120 * teapotCents, OrdersShipped: 30, StockReserved: 120},
		"partner": {OrdersPlaced: 60, RevenueCents: 120 * teapotCents, OrdersShipped: 30},
		"carrier": {OrdersShipped: 30},
	}
	assert.Equal(t, Comparison{Expected: want, Actual: want, Agree: true}, result.Projection)
	assert.Equal(t, 3, result.Kills)

	var internal, external struct {
		Metadata struct {
			Headers struct{ ID string }
			Domain  map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(result.InternalExample, &internal))
	require.NoError(t, json.Unmarshal(result.ExternalExample, &external))
	assert.Equal(t, internal.Metadata.Headers.ID, external.Metadata.Headers.ID)
	assert.Contains(t, internal.Metadata.Domain, "priority")
	assert.NotContains(t, external.Metadata.Domain, "priority")

	for _, text := range []string{"default is away", "partner is away", "carrier is back", "is killed", "0 lost", "The numbers agree"} {
		assert.Contains(t, stderr.String(), text)
	}
}

// The comparison must be able to fail.
func TestLostMessage(t *testing.T) {
	t.Parallel()
	rows := []row{
		{MessageID: "1", TargetBroker: "default", Status: outbox.StatusPublished},
		{MessageID: "1", TargetBroker: "partner", Status: outbox.StatusPublished},
		{MessageID: "2", TargetBroker: "default", Status: outbox.StatusAbandoned},
	}
	arrived := map[string][]brokers.Message{"default": {{ID: "1"}, {ID: "1"}}, "partner": {{ID: "1", Payload: []byte("{}")}}}
	result := newResult(1, rows, arrived)
	assert.Equal(t, 1, result.Lost)
	assert.Equal(t, 1, result.Duplicates)
	assert.Equal(t, 2, result.Events)
	assert.JSONEq(t, "{}", string(result.ExternalExample))
	require.ErrorContains(t, result.verdict(), "1 messages were lost")
}

func TestProjectionsThatDisagree(t *testing.T) {
	t.Parallel()
	expected := map[string]Projection{"default": {OrdersPlaced: 2, RevenueCents: 10}, "partner": {OrdersPlaced: 2, RevenueCents: 10}}
	for name, actual := range map[string]map[string]Projection{
		"twice":   {"default": {OrdersPlaced: 3, RevenueCents: 15}, "partner": {OrdersPlaced: 2, RevenueCents: 10}},
		"a cent":  {"default": {OrdersPlaced: 2, RevenueCents: 10}, "partner": {OrdersPlaced: 2, RevenueCents: 9}},
		"nothing": {"default": {OrdersPlaced: 2, RevenueCents: 10}},
		"ghost":   {"default": {OrdersPlaced: 2, RevenueCents: 10}, "partner": {OrdersPlaced: 2, RevenueCents: 10}, "carrier": {OrdersPlaced: 1}},
	} {
		result := &Result{Projection: compareProjections(expected, actual)}
		require.ErrorContains(t, result.verdict(), "do not agree", name)
		var live bytes.Buffer
		newView(settings{live: &live}).projections(result)
		assert.Contains(t, live.String(), "DO NOT AGREE", name)
	}
	require.NoError(t, (&Result{Projection: compareProjections(expected, expected)}).verdict())
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--orders 0", "--orders=many", "--nonsense", "extra"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, command(t.Context(), strings.Fields(args), nil, &stdout, &stderr), args)
		assert.Contains(t, stderr.String(), "wrong usage")
		assert.Empty(t, stdout.String())
	}
	var stderr bytes.Buffer
	assert.Zero(t, command(t.Context(), []string{"--help"}, nil, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "-port")
}

// watcher calls f with the first text that matches the pattern.
type watcher struct {
	pattern *regexp.Regexp
	once    sync.Once
	f       func(match string)
}

func (w *watcher) Write(text []byte) (int, error) {
	if match := w.pattern.Find(text); match != nil {
		w.once.Do(func() { w.f(string(match)) })
	}
	return len(text), nil
}

// An interrupt leaves no process and no file, with the consumer at work and a broker away.
func TestInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // Unix
	t.Setenv("TMP", os.TempDir())   // Windows
	for _, text := range []string{"is killed", "partner is away", "default is away"} {
		ctx, interrupt := context.WithCancel(t.Context())
		live := &watcher{pattern: regexp.MustCompile(text), f: func(string) { interrupt() }}
		result, err := demonstrate(ctx, settings{orders: 50, live: live})
		require.ErrorIs(t, err, context.Canceled, text)
		assert.Nil(t, result)
		left, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		assert.Empty(t, left, text)
	}
}

// A consumer that ends by itself is an error with its own message. It ends without its parent.
func TestConsumerThatEndsByItself(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		filepath.Join(t.TempDir(), "no", "such", "folder", "consumer.db"): "unable to open database file",
		filepath.Join(t.TempDir(), "consumer.db"):                         "connect", // the parent's port is closed
	} {
		r := &run{consumes: consumerConfig{URL: "http://127.0.0.1:1/messages", Database: database}}
		require.NoError(t, r.startConsumer(t.Context()))
		<-r.consumer.done
		require.ErrorContains(t, r.consumer.ended(), "has ended by itself")
		require.ErrorContains(t, r.consumer.ended(), want)
	}
}

// The dashboard stays after the result. It shows rows and acts on them, for this machine alone.
func TestDashboard(t *testing.T) {
	t.Parallel()
	input, enter := io.Pipe()
	var visit sync.WaitGroup
	live := &watcher{pattern: regexp.MustCompile(`http://\S+ until you press Enter`)}
	live.f = func(match string) {
		url, _, _ := strings.Cut(match, " ")
		visit.Go(func() {
			defer enter.Close()
			status, body := visitPage(t, http.MethodGet, url, "", "", nil)
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, body, "<html")
			for host, want := range map[string]int{
				"localhost:1": 200, "127.0.0.1": 200, "[::1]:8088": 200,
				"evil.example": 421, "evil.example:8088": 421, "192.0.2.1": 421, "localhost.evil.example": 421,
			} {
				status, _ = visitPage(t, http.MethodGet, url+"api/outbox", host, "", nil)
				assert.Equal(t, want, status, host)
			}
			_, body = visitPage(t, http.MethodGet, url+"api/me", "", "", nil)
			var me struct{ CSRF string }
			assert.NoError(t, json.Unmarshal([]byte(body), &me))
			status, body = visitPage(t, http.MethodPost, url+"api/outbox/default/actions", "",
				`{"action": "replay", "broker": "partner", "reason": "to see it again"}`, map[string]string{
					"Content-Type": "application/json", "Origin": strings.TrimSuffix(url, "/"), "Sec-Fetch-Site": "same-origin", "X-Fanout-CSRF": me.CSRF,
				})
			assert.Equal(t, http.StatusOK, status, body)
			assert.Contains(t, body, `"changed":6`)
		})
	}
	result, err := demonstrate(t.Context(), settings{orders: 4, live: live, enter: input})
	visit.Wait()
	require.NoError(t, err)
	assert.Zero(t, result.Lost)
}

func visitPage(t *testing.T, method, url, host, body string, header map[string]string) (int, string) {
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if !assert.NoError(t, err) {
		return 0, ""
	}
	request.Host = host
	for name, value := range header {
		request.Header.Set(name, value)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if !assert.NoError(t, err) {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestListen(t *testing.T) {
	t.Parallel()
	taken, err := listen(t.Context(), 0)
	require.NoError(t, err)
	defer taken.Close()
	other, err := listen(t.Context(), taken.Addr().(*net.TCPAddr).Port)
	require.NoError(t, err)
	defer other.Close()
	assert.NotEqual(t, taken.Addr(), other.Addr())
	assert.True(t, other.Addr().(*net.TCPAddr).IP.IsLoopback())
}
