package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// One message is older than thousands of others. Each filter finds it, over the command and over HTTP,
// and what is not there is never confused with what was not looked at.
func TestTheOldestOfThousands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.thousands()
		const others, trace = 6200, "4bf92f3577b34da6a3ce929d0e0e4736"
		wanted := message(1, "Ordering.OrderRefunded.v1", "ordering::order-42", "partner")
		wanted.AggregateType, wanted.AggregateID, wanted.CorrelationID, wanted.TenantID = "order", "42", "corr-42", "acme"
		wanted.Headers = `{"traceparent":"00-` + trace + `-00f067aa0ba902b7-01"}`
		s.insert(wanted)
		for n := 2; n < others; n += 500 {
			rows := make([]outbox.Row, 500)
			for i := range rows {
				rows[i] = message(n+i, "Ordering.OrderPlaced.v1", fmt.Sprintf("ordering::order-%d", 1000+n+i), "partner")
				rows[i].CorrelationID, rows[i].TenantID = "corr-1", "other"
			}
			s.insert(rows...)
		}
		handler, err := monitor.New(monitor.Config{Console: monitor.NewConsole(map[string]admin.Administration{"main": s.store})})
		require.NoError(t, err)
		server := httptest.NewServer(handler)
		defer server.Close()
		get := func(query url.Values) (page struct {
			Messages []api.Record `json:"messages"`
			Next     string       `json:"next"`
			Scanned  int          `json:"scanned"`
		},
		) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/outbox/main/messages?"+query.Encode(), nil)
			require.NoError(t, err)
			response, err := server.Client().Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusOK, response.StatusCode, string(body))
			require.NoError(t, json.Unmarshal(body, &page))
			return page
		}

		for _, filter := range [][2]string{
			{"key", "order-42"},
			{"key", "ordering::order-42"},
			{"type", "Ordering.OrderRefunded.v1"},
			{"aggregate", "42"},
			{"aggregate", "order-42"},
			{"correlation", "corr-42"},
			{"tenant", "acme"},
			{"trace", trace},
		} {
			found := lines[api.Record](t, s.does("messages", "list", "--"+filter[0], filter[1], "--json"))
			require.Len(t, found, 1, filter)
			assert.Equal(t, messageID(1), found[0].MessageID, filter)
			page := get(url.Values{filter[0]: filter[1:]})
			require.Len(t, page.Messages, 1, filter)
			assert.Equal(t, messageID(1), page.Messages[0].MessageID, filter)
			assert.Empty(t, page.Next, filter)

			// With other conditions, too, and with one that rules it out.
			assert.Contains(t, s.does("messages", "list", "--"+filter[0], filter[1], "--status", "pending", "--broker", "partner", "--since", "1h"), messageID(1))
			assert.Empty(t, get(url.Values{filter[0]: filter[1:], "status": {"published"}}).Messages)

			code, stdout, stderr := s.run("messages", "list", "--"+filter[0], "0af7651916cd43dd8448eb211c80319c")
			assert.Equal(t, exitFailed, code, stderr)
			assert.Empty(t, stdout)
			assert.Regexp(t, `^fanout: no message has the [a-z ]+ "0af7651916cd43dd8448eb211c80319c"`, stderr)
			page = get(url.Values{filter[0]: {"0af7651916cd43dd8448eb211c80319c"}})
			assert.Empty(t, page.Messages)
			assert.Empty(t, page.Next, "that is certain")
		}

		// A pattern has no index. The list goes on to the end, unless its time ends before that: then it says so, and where to go on.
		assert.Contains(t, s.does("messages", "list", "--type", "Ordering.OrderRef*"), messageID(1))
		page := get(url.Values{"type": {"Ordering.OrderRef*"}})
		assert.Empty(t, page.Messages)
		require.NotEmpty(t, page.Next)
		assert.Equal(t, 5000, page.Scanned)
		var found []api.Record
		for cursor, pages := page.Next, 0; cursor != ""; pages++ {
			require.Less(t, pages, 4)
			next := get(url.Values{"type": {"Ordering.OrderRef*"}, "cursor": {cursor}})
			found, cursor = append(found, next.Messages...), next.Next
		}
		require.Len(t, found, 1)
		code, stdout, stderr := s.run("messages", "list", "--type", "Ordering.OrderRef*", "--max-time", "1ns")
		assert.Equal(t, exitFailed, code)
		assert.Empty(t, stdout)
		assert.NotContains(t, stderr, "no message matches")
		assert.Contains(t, stderr, "main: looked at 5,000 rows in 1ns, as far as the pending ones of broker partner, and none of them matches; go on with --database main --cursor "+page.Next)
		assert.Contains(t, s.does("messages", "list", "--type", "Ordering.OrderRef*", "--cursor", page.Next), messageID(1))

		// What acts by the same filters acts on the same rows.
		assert.Equal(t, "main: 1 row would be abandoned\n", s.does("messages", "abandon", "--key", "order-42", "--dry-run"))
		assert.Equal(t, "main: 0 rows would be abandoned\n", s.does("messages", "abandon", "--key", "order-42", "--tenant", "other", "--dry-run"))
		assert.Equal(t, "main: 1 row abandoned\n", s.does("messages", "abandon", "--correlation", "corr-42", "--aggregate", "order-42", "--tenant", "acme"))
		assert.Contains(t, s.does("messages", "list", "--key", "order-42"), "abandoned")
		assert.Contains(t, s.does("audit", "--json"), `"correlation":"corr-42"`)
	})
}
