package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages are all pages of the dashboard.
var pages = map[string]string{"overview": "#/", "messages": "#/messages", "failures": "#/failures", "blocked": "#/blocked", "workers": "#/workers", "audit": "#/audit"}

// The cause is cured, and the whole group is sent again: the number is shown before, and the audit
// tells of it.
func TestRequeueAFailureGroup(t *testing.T) {
	p := newPlace(t)
	p.visit("#/failures")
	p.says("does not exist")
	p.screenshot("failures-light")
	p.partner.cured.Store(true)
	p.click("button", "Requeue all")
	p.says("40 rows match.")
	p.do(chromedp.SendKeys(`dialog input[name=reason]`, "topic created"))
	p.screenshot("requeue-dialog")
	p.click("button", "Requeue 40 rows")
	p.says("40 rows requeued.")
	p.eventually("rows WHERE target_broker = 'partner' AND status = 'published'", rows)
	p.click("button", "Done")
	p.says("Nothing has failed.")
	p.visit("#/audit")
	p.says("topic created")
	p.says("ada")
	p.screenshot("audit-light")
}

// The same by the keyboard alone.
func TestRequeueByKeyboard(t *testing.T) {
	p := newPlace(t)
	p.visit("#/failures")
	p.partner.cured.Store(true)
	press := func(times int, label string) {
		p.Helper()
		for range times {
			p.do(chromedp.KeyEvent(kb.Tab))
			if ask[string](p, "document.activeElement.textContent.trim()") == label {
				p.do(chromedp.KeyEvent(kb.Enter))
				return
			}
		}
		p.Fatalf("%q cannot be reached by the keyboard", label)
	}
	press(40, "Requeue all")
	p.says("40 rows match.")
	assert.Equal(t, "reason", ask[string](p, "document.activeElement.name"), "the dialog has the focus")
	press(5, "Requeue 40 rows")
	p.says("40 rows requeued.")
	p.do(chromedp.KeyEvent(kb.Enter)) // the button that closes has the focus
	p.eventually("rows WHERE target_broker = 'partner' AND status = 'published'", rows)
}

// A broker is paused with a reason, which everybody sees, and goes on.
func TestPauseAndResume(t *testing.T) {
	p := newPlace(t)
	p.visit("#/")
	p.do(chromedp.Click(`button[aria-label="Pause default"]`, chromedp.NodeEnabled), chromedp.SendKeys(`dialog input[name=reason]`, "their maintenance"))
	p.click("dialog//button", "Pause")
	p.says("their maintenance")
	p.do(chromedp.WaitVisible(`button[aria-label="Resume default"]`))
	p.eventually("rows WHERE (SELECT count(*) FROM outbox_messages_pauses) = 1", 2*rows)
	p.screenshot("paused")
	p.do(chromedp.Click(`button[aria-label="Resume default"]`, chromedp.NodeEnabled))
	p.click("dialog//button", "Resume")
	p.do(chromedp.WaitVisible(`button[aria-label="Pause default"]`))
	p.eventually("rows WHERE (SELECT count(*) FROM outbox_messages_pauses) = 0", 2*rows)
}

// A message is found by its id, and what each broker got of it is seen side by side, the payload
// only on demand.
func TestFanOutOfAMessage(t *testing.T) {
	p := newPlace(t)
	id := p.write()
	p.eventually("rows WHERE status = 'abandoned'", rows+1)
	p.visit("#/messages")
	p.screenshot("messages-light")
	p.do(chromedp.SendKeys(`#search input`, id+kb.Enter))
	p.says("The way of a message")
	p.says("abandoned")
	p.screenshot("search-light")
	p.visit("#/messages/default/" + id)
	p.says("2 brokers")
	p.says("Abandoned")
	p.says("Published")
	assert.False(t, ask[bool](p, "document.body.innerText.includes('checked by hand')"), "payloads are hidden")
	p.click("button", "Show what each broker gets")
	p.says("checked by hand")
	p.screenshot("message-light")
}

// The overview says in words what is wrong.
func TestOverview(t *testing.T) {
	p := newPlace(t)
	p.visit("#/")
	p.do(chromedp.WaitVisible(`article[data-broker=partner]`), chromedp.WaitVisible(`article[data-broker=default]`))
	p.says("partner")
	p.says("abandoned")
	p.screenshot("overview-light")
	p.do(scheme("dark"), chromedp.Navigate("about:blank"))
	p.visit("#/")
	p.screenshot("overview-dark")
}

// A consumer that has died is named: its inbox lacks what was published.
func TestOverviewOfADeadConsumer(t *testing.T) {
	p := newPlace(t)
	p.eventually("m WHERE target_broker = 'default' AND status = 'published'", rows)
	_, err := p.db.ExecContext(t.Context(), "UPDATE outbox_messages SET published_at = published_at - 600000000, finished_at = finished_at - 600000000 WHERE target_broker = 'default'")
	require.NoError(t, err)
	var first string
	require.NoError(t, p.db.QueryRowContext(t.Context(), "SELECT message_id FROM outbox_messages WHERE target_broker = 'default' ORDER BY published_at, id LIMIT 1").Scan(&first))
	p.mu.Lock()
	p.recorded = map[uuid.UUID]bool{uuid.MustParse(first): true}
	p.mu.Unlock()
	p.visit("#/")
	p.says("The consumer billing has not recorded the last 39 rows of default, for 10 min")
}

// Every page fits a phone, in the light and in the dark.
func TestPhone(t *testing.T) {
	p := newPlace(t)
	p.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, theme := range []string{"light", "dark"} {
		p.do(scheme(theme))
		for name, hash := range pages {
			p.visit(hash)
			assert.LessOrEqual(t, ask[int](p, "document.documentElement.scrollWidth"), 360, "%s, %s: scrolls sideways", name, theme)
			p.screenshot("phone-" + name + "-" + theme)
		}
	}
}

// What an application has written into a row is shown as it is, and turns nothing around; an
// address is a page or none.
func TestOddRowsAndAddresses(t *testing.T) {
	p := newPlace(t)
	_, err := p.db.ExecContext(p.Context(), `INSERT INTO outbox_messages_instances (instance_id, name, host, pid, version, started_at, seen_at, work)
		VALUES ('nonsense', 'a' || char(8238) || 'b', 'h', 1, '', 'x', 'x', 'x')`)
	require.NoError(t, err)
	p.visit("#/workers")
	p.says("column started_at is \"x\"")
	p.says(`a\u{202e}b`)
	for _, address := range []string{"#/constructor", "#/__proto__", "#/toString", "#/message", "#/hasOwnProperty"} {
		p.visit(address)
		p.says("There is no such page")
	}
}
