package explore

import "slices"

// checkChange looks at what one step made of a row. now is nil when the row is gone.
func (p *Protocol) checkChange(old, now *Row, before *State, a *Action, report report) {
	if now == nil {
		p.checkRemoval(old, before, a, report)
		return
	}
	if *old == *now {
		return
	}
	if old.Status.Terminal() && now.Status != old.Status && a.Kind != Requeue && a.Kind != Replay {
		report(FinalStates, "row %d was %s and is %s", old.ID, old.Status, now.Status)
	}
	checkHolder(old, now, before, a, report)
	checkAttempts(old, now, before, a, report)
}

// checkRemoval: a row is removed by a purge, when it is finished; or where published rows are not kept, by
// the one who holds it, when the broker has it.
func (p *Protocol) checkRemoval(old *Row, before *State, a *Action, report report) {
	switch {
	case p.DeletePublished && a.Kind == Complete:
		if !old.leased() || old.Token != before.Workers[a.Worker].Token {
			report(Fence, "row %d was removed by worker %d, who does not hold it", old.ID, a.Worker+1)
		}
		if before.Entry(old.ID).Delivered == 0 {
			report(Confirmed, "row %d was removed and the broker never had it", old.ID)
		}
	case !old.Status.Terminal() || a.Kind != Remove:
		report(FinalStates, "row %d was removed while it was %s", old.ID, old.Status)
	default:
	}
}

// checkHolder: a row that changes hands must be free, and one that is completed must be the
// completer's.
func checkHolder(old, now *Row, before *State, a *Action, report report) {
	taken := now.leased() && (now.Token != old.Token || !old.leased())
	if taken && old.leased() && old.Waits {
		report(OneClaim, "row %d was taken from an unexpired claim", old.ID)
	}
	if a.Kind == Complete && (old.Status != now.Status || old.Attempts != now.Attempts) &&
		(!old.leased() || old.Token != before.Workers[a.Worker].Token) {
		report(Fence, "row %d was marked by worker %d, who does not hold it", old.ID, a.Worker+1)
	}
}

// checkAttempts looks at what a step charged to a row.
func checkAttempts(old, now *Row, before *State, a *Action, report report) {
	spent := now.Attempts - old.Attempts
	if spent <= 0 {
		return
	}
	switch a.Kind {
	case Claim, Take:
		if e := before.Entry(old.ID); e.Shared || !old.leased() {
			report(Attempts, "row %d is charged with a crash although it was not alone in its claim", old.ID)
		}
	case Complete:
		if now.Status == Pending || now.Status == Failed && !now.Waits && a.Outcomes == nil {
			report(Attempts, "row %d went back and was charged with an attempt", old.ID)
		}
	default:
		report(Attempts, "row %d was charged with an attempt", old.ID)
	}
	if spent > 1 {
		report(Attempts, "row %d was charged with %d attempts at once", old.ID, spent)
	}
}

// checkLimits looks at how much a claim took.
func checkLimits(before *State, request *Request, reply *Reply, report report) {
	if len(reply.Rows) > request.Limit {
		report(Prefix, "a claim took %d rows, more than its limit of %d", len(reply.Rows), request.Limit)
	}
	size := 0
	for _, id := range reply.Rows {
		size += before.Row(id).Size
	}
	if request.Bytes > 0 && size > request.Bytes && len(reply.Rows) > 1 {
		report(Prefix, "a claim took %d rows with %d bytes, more than its limit of %d", len(reply.Rows), size, request.Bytes)
	}
}

// checkClaim looks at what a claim took.
func checkClaim(before *State, a *Action, reply *Reply, report report) {
	request := a.Request
	if a.Kind == Take {
		request = before.Workers[a.Worker].Request
	}
	checkLimits(before, &request, reply, report)
	if request.Unordered {
		return
	}
	for _, id := range reply.Rows {
		r := before.Row(id)
		for i := range before.Rows {
			other := &before.Rows[i]
			if !r.sameKey(other) {
				continue
			}
			if other.ID < id && other.open() && !other.Scheduled && !slices.Contains(reply.Rows, other.ID) {
				report(Prefix, "a claim took row %d and not row %d before it, which is %s", id, other.ID, other.Status)
			}
			// Whatever operators do: a claim sees what is leased inside of its window.
			if request.Window >= len(before.Rows) && other.leased() && other.Waits {
				report(OneHand, "a claim took row %d while row %d of its key is claimed by another worker", id, other.ID)
			}
		}
	}
}
