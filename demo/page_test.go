package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// paper is what a run prints, for a test that reads it meanwhile.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// visitor calls a dashboard as its page does.
type visitor struct {
	t      *testing.T
	url    string
	client *http.Client
}

func newVisitor(t *testing.T, url string) *visitor {
	t.Helper()
	return &visitor{t, url, &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (v *visitor) do(method, path, host, body string, header map[string]string) (int, string) {
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	if !assert.NoError(v.t, err) {
		return 0, ""
	}
	request.Host = host
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := v.client.Do(request)
	if !assert.NoError(v.t, err) {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NoError(v.t, err)
	return response.StatusCode, string(text)
}

func (v *visitor) get(path string) (int, string) { return v.do(http.MethodGet, path, "", "", nil) }

// post acts with the token that the page would take.
func (v *visitor) post(path, body string) (int, string) {
	_, text := v.get("api/me")
	var me struct{ CSRF string }
	assert.NoError(v.t, json.Unmarshal([]byte(text), &me))
	return v.do(http.MethodPost, path, "", body, map[string]string{
		"Content-Type": "application/json", "Origin": strings.TrimSuffix(v.url, "/"), "Sec-Fetch-Site": "same-origin", "X-Fanout-CSRF": me.CSRF,
	})
}

func TestPageWhileTheDemoRuns(t *testing.T) {
	t.Parallel()
	var (
		group sync.WaitGroup
		live  paper
		page  *visitor
	)
	result, err := demonstrate(t.Context(), settings{orders: 40, live: &live, listen: "127.0.0.1:0", opened: func(url string) {
		assert.Contains(t, live.String(), "The dashboard is at "+url)
		page = newVisitor(t, url)
		status, body := page.get("")
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, body, "<html")
		for host, want := range map[string]int{
			"localhost:1": 200, "127.0.0.1": 200, "[::1]:8088": 200, "evil.example": 421, "evil.example:8088": 421, "192.0.2.1": 421, "localhost.evil.example": 421,
		} {
			status, _ = page.do(http.MethodGet, "api/outbox", host, "", nil)
			assert.Equal(t, want, status, host)
		}
		status, body = page.post("api/outbox/default/brokers/partner/pause", `{"reason": "to see it wait"}`)
		assert.Equal(t, http.StatusOK, status, body)
		assert.JSONEq(t, `{"changed": true}`, body)
		group.Go(func() { // beside the run, which ends only once the partner goes on
			assert.Eventually(t, func() bool {
				_, body := page.get("api/outbox/default/messages?broker=default&status=published&limit=1")
				return strings.Contains(body, `"status":"published"`)
			}, 30*time.Second, 5*time.Millisecond)
			assert.Eventually(t, func() bool { // an answer holds for a moment
				status, body := page.get("api/outbox")
				return status == http.StatusOK && strings.Contains(body, "to see it wait")
			}, 30*time.Second, 5*time.Millisecond)
			status, body := page.post("api/outbox/default/brokers/partner/resume", `{}`)
			assert.Equal(t, http.StatusOK, status, body)
			assert.JSONEq(t, `{"changed": true}`, body)
		})
	}})
	group.Wait()
	require.NoError(t, err)
	assert.Zero(t, result.Lost)
	assert.Equal(t, 60, result.Delivered["partner"])
	assert.NotContains(t, live.String(), "until you press Enter", "no one could")
	closed(t, page.url)
}

func TestPageStaysAfterTheResult(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(enter *io.PipeWriter, interrupt func()){
		"Enter":     func(enter *io.PipeWriter, _ func()) { _, _ = enter.Write([]byte("\n")) },
		"interrupt": func(_ *io.PipeWriter, interrupt func()) { interrupt() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			input, enter := io.Pipe()
			defer enter.Close()
			var (
				live  paper
				group sync.WaitGroup
				url   string
			)
			result, err := demonstrate(ctx, settings{orders: 4, live: &live, listen: "127.0.0.1:0", enter: input, opened: func(at string) {
				url = at
				group.Go(func() {
					defer end(enter, interrupt)
					assert.Eventually(t, func() bool {
						return strings.Contains(live.String(), "The dashboard stays at "+url+" until you press Enter.")
					}, 30*time.Second, 5*time.Millisecond)
					page := newVisitor(t, url)
					status, body := page.get("api/outbox")
					assert.Equal(t, http.StatusOK, status)
					assert.Contains(t, body, `"default":{"status":"ok"`)
					status, body = page.post("api/outbox/default/actions", `{"action": "replay", "broker": "partner", "reason": "to see it again"}`)
					assert.Equal(t, http.StatusOK, status, body)
					assert.Contains(t, body, `"changed":6`)
					_, body = page.get("api/outbox/default/audit")
					assert.Contains(t, body, `"you"`)
				})
			}})
			group.Wait()
			require.NoError(t, err)
			assert.Zero(t, result.Lost)
			assert.Less(t, result.Duplicates, 6, "the six that are replayed after the result do not change it") // a busy machine may redeliver before
			closed(t, url)
		})
	}
}

func closed(t *testing.T, url string) {
	t.Helper()
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.Trim(strings.TrimPrefix(url, "http:"), "/"))
	require.Error(t, err, "the port is free again")
}

func TestListen(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	require.NoError(t, err)
	defer taken.Close()
	other, err := listen(t.Context(), taken.Addr().String())
	require.NoError(t, err)
	defer other.Close()
	host, port, err := net.SplitHostPort(other.Addr().String())
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1", host)
	assert.NotEqual(t, taken.Addr().String(), net.JoinHostPort(host, port))

	for _, good := range []string{"", "127.0.0.1:8088", "localhost:0", "[::1]:8088", "127.8.8.8:1"} {
		require.NoError(t, checkListen(good), good)
	}
	for address, want := range map[string]string{
		":8088": "whoever reaches the demo may act", "0.0.0.0:8088": "may act", "192.0.2.1:80": "may act", "demo.example:80": "may act",
		"8088": "HOST:PORT", "127.0.0.1": "HOST:PORT",
	} {
		require.ErrorContains(t, checkListen(address), want, address)
	}
}
