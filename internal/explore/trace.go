package explore

import (
	"fmt"
	"strings"
)

// Describe says in a line what an action did, for people.
func Describe(a *Action, reply *Reply) string {
	switch a.Kind {
	case Write:
		return "a transaction commits " + newRows(a.Rows)
	case Expire:
		return fmt.Sprintf("the lease of claim %d runs out", a.Token)
	case Pass:
		return fmt.Sprintf("the time that row %d waits for comes", a.ID)
	case Defer:
		return fmt.Sprintf("waiting rows in the %s shard are deferred, looking at %d: %d rows", a.Request.Shard, a.Request.Window, reply.Deferred)
	case PlanDefer:
		return fmt.Sprintf("another transaction decides to defer what waits in the %s shard, looking at %d", a.Request.Shard, a.Request.Window)
	case PlanLift:
		return fmt.Sprintf("another transaction decides which blocks of the %s shard are lifted", a.Request.Shard)
	case Apply:
		return fmt.Sprintf("plan %d is carried out: %d rows are deferred", a.ID+1, reply.Deferred)
	case Forget:
		return fmt.Sprintf("plan %d is forgotten", a.ID+1)
	case Mark:
		return fmt.Sprintf("a purge looks for rows that are %s", a.Status)
	case Remove:
		return "the purge removes " + rowList(reply.Rows)
	case UnblockKey:
		return "an operator lets key " + keyName(a.Key) + " go on"
	case Requeue, Replay, Drop:
		verb := map[Kind]string{Requeue: "requeues", Replay: "replays", Drop: "abandons"}[a.Kind]
		if a.Also != 0 {
			return fmt.Sprintf("an operator %s rows %d and %d at once", verb, a.ID, a.Also)
		}
		return fmt.Sprintf("an operator %s row %d", verb, a.ID)
	default:
		return describeWorker(a, reply)
	}
}

func describeWorker(a *Action, reply *Reply) string {
	who := fmt.Sprintf("worker %d", a.Worker+1)
	switch a.Kind {
	case Claim, Look:
		return describeClaim(who, a, reply)
	case Take:
		return who + " takes what it has chosen: " + rowList(reply.Rows)
	case Renew:
		return fmt.Sprintf("%s renews its lease%s: %d rows are still its own", who, a.Fate, reply.Kept)
	case Send:
		return who + " sends " + rowList(reply.Rows)
	case Answer:
		return who + "'s message " + a.Result.String()
	case Complete:
		return fmt.Sprintf("%s completes its batch%s: %d rows lost", who, a.Fate, reply.Lost)
	case GiveUp:
		return who + " drops its completion"
	case Crash:
		return who + " crashes"
	default:
		return "something unknown happens"
	}
}

func describeClaim(who string, a *Action, reply *Reply) string {
	verb := " claims from the "
	if a.Kind == Look {
		verb = " looks at the "
	}
	wake := ""
	if a.Request.Wake {
		wake = ", bringing back what is deferred"
	}
	heavy := ""
	if a.Request.Bytes > 0 {
		heavy = fmt.Sprintf(", %d bytes", a.Request.Bytes)
	}
	if a.Request.Held > 0 {
		heavy += fmt.Sprintf(", while row %d is being written", a.Request.Held)
	}
	return fmt.Sprintf("%s%s%s shard, limit %d of %d%s%s%s: %s", who, verb, a.Request.Shard, a.Request.Limit, a.Request.Window, heavy, wake, a.Fate, rowList(reply.Rows))
}

// String is the end of a sentence about a call.
func (f Fate) String() string {
	return [...]string{"", " (and does not learn that it was done)", " (and does not learn that it was not done)", " (which the database loses in a crash)"}[f]
}

// String is the end of a sentence about a message.
func (r Result) String() string {
	return [...]string{
		"is delivered", "is delivered, but the answer is lost", "fails and is worth another try", "is refused",
		"meets an outage of the broker", "meets an outage of its destination",
	}[r]
}

func keyName(key int) string {
	if key == 0 {
		return "none"
	}
	return string(rune('A' + (key-1)%26))
}

func rowList(ids []int) string {
	switch len(ids) {
	case 0:
		return "nothing"
	case 1:
		return fmt.Sprintf("row %d", ids[0])
	}
	return "rows " + strings.Trim(fmt.Sprint(ids), "[]")
}

func newRows(rows []NewRow) string {
	texts := make([]string, len(rows))
	for i, n := range rows {
		texts[i] = fmt.Sprintf("row %d (key %s", n.ID, keyName(n.Key))
		if n.Class != Normal {
			texts[i] += ", " + n.Class.String()
		}
		if n.Scheduled {
			texts[i] += ", scheduled"
		}
		if n.Dead {
			texts[i] += ", malformed"
		}
		texts[i] += ")"
	}
	return strings.Join(texts, ", ")
}

// String shows a state in one line per row and worker, for people.
func (s *State) String() string {
	var b strings.Builder
	for i := range s.Rows {
		r := &s.Rows[i]
		fmt.Fprintf(&b, "row %d key %s %s waits=%t claim=%d attempts=%d crashes=%d deferred=%t scheduled=%t\n",
			r.ID, keyName(r.Key), r.Status, r.Waits, r.Token, r.Attempts, r.Crashes, r.Deferred, r.Scheduled)
	}
	for _, g := range s.Blocks {
		fmt.Fprintf(&b, "block %d key %s shard %s %s\n", g.Row, keyName(g.Key), g.Shard, g.Wake)
	}
	for i := range s.Workers {
		if w := &s.Workers[i]; w.Phase != Idle {
			fmt.Fprintf(&b, "worker %d phase %d claim=%d late=%t %+v\n", i+1, w.Phase, w.Token, w.Late, w.Batch)
		}
	}
	return b.String()
}
