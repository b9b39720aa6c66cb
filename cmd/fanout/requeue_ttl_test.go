package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox"
)

// What is requeued can be delivered, or is refused with the reason.
func TestRequeueOfWhatCannotSucceed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		past := "'2000-01-01'"
		if s.driver == outbox.SQLite {
			past = "1"
		}
		for n, class := range []string{"expired", "malformed", "permanent"} {
			s.write(n+1, "Ordering.OrderPlaced.v1", "", "partner")
			s.exec("UPDATE outbox_messages SET status = 'abandoned', finished_at = created_at, expires_at = " + past +
				`, last_error = '{"class":"` + class + `","message":"why"}' WHERE ` + s.is(n+1))
		}
		const left = "main: 1 row left out: malformed, so a relay would abandon them again; correct them in the table, then requeue them with --error-class malformed\n"
		assert.Equal(t, "main: 0 rows requeued\n"+left, s.does("messages", "requeue", "--id", messageID(2)))
		assert.Equal(t, "main: 2 rows would be requeued\n"+left, s.does("messages", "requeue", "--broker", "partner", "--dry-run"))
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--error-class", "expired"))
		assert.Equal(t, 1, s.count("status = 'pending' AND expires_at IS NULL"))
		assert.JSONEq(t, `{"database":"main","matched":1,"refused":1,"changed":1,"audit_id":3}`, s.does("messages", "requeue", "--broker", "partner", "--ttl", "1h", "--json"))
		assert.Equal(t, 1, s.count("status = 'pending' AND expires_at > created_at"))
		assert.Equal(t, "main: 1 row requeued\n", s.does("messages", "requeue", "--error-class", "malformed"))
		assert.Equal(t, 3, s.count("status = 'pending'"))
		for _, ttl := range []string{"0s", "-1h", "soon", "20000d"} {
			code, _, stderr := s.run("messages", "requeue", "--broker", "partner", "--ttl", ttl)
			assert.Equal(t, exitUsage, code, ttl)
			assert.Contains(t, stderr, "ttl", ttl)
		}
	})
}
