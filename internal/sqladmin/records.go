package sqladmin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/strictjson"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// mostRows bounds what a caller can ask for, so that arguments of statements do not overflow.
const mostRows = 1 << 30

// BeginAudit implements admin.Administration.
func (a *Admin) BeginAudit(ctx context.Context, entry admin.AuditEntry) (id int64, err error) {
	err = a.write(ctx, Plain, func(ctx context.Context, conn Conn) error {
		given := args{
			"actor": Text(entry.Actor), "via": Text(entry.Via), "action": Text(entry.Action), "broker": Text(entry.Broker),
			"filter": Text(entry.Filter), "reason": Text(entry.Reason),
		}
		begin := "audit_begin"
		if _, ok := a.statements["audit_begun"]; ok { // the insert does not answer
			if _, err := a.exec(ctx, conn, begin, given); err != nil {
				return err
			}
			begin = "audit_begun"
		}
		id, err = a.number(ctx, conn, begin, given)
		return err
	})
	if err != nil {
		return 0, a.failed(err, "record in %s_audit that %q begins", a.table, entry.Action)
	}
	return id, nil
}

// EndAudit implements admin.Administration. It is no error that there is no such entry any more.
func (a *Admin) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	if _, err := a.change(ctx, "audit_end", args{"id": id, "rows": rows, "failure": Text(failure)}); err != nil {
		return a.failed(err, "record in %s_audit how action %d has ended", a.table, id)
	}
	return nil
}

// Audit implements admin.Administration. Where readers do not wait for writers it passes over an
// entry that another transaction is writing.
func (a *Admin) Audit(ctx context.Context, before int64, limit int) (entries []admin.AuditEntry, err error) {
	if limit < 1 {
		return nil, fmt.Errorf("%s: audit: the limit is %d: it must be at least 1", a.dialect.Name, limit)
	}
	err = a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
		entries = nil
		given := args{"before": cmp.Or(max(before, 0), math.MaxInt64), "limit": int64(min(limit, mostRows))}
		return a.query(ctx, conn, "audit", given, func(scan scanner) error {
			var (
				e              admin.AuditEntry
				started, ended moment
			)
			err := scan(&e.ID, &e.Actor, &e.Via, &e.Action, &e.Broker, &e.Filter, &e.Reason, &e.Rows, &started, &ended, &e.Failure)
			e.StartedAt, e.EndedAt = started.Time, ended.Time
			entries = append(entries, e)
			return err
		})
	})
	if err != nil {
		return nil, a.failed(err, "list %s_audit", a.table)
	}
	return entries, nil
}

// Pause implements admin.Administration.
func (a *Admin) Pause(ctx context.Context, pause admin.Pause) (changed bool, err error) {
	if err := pause.Validate(); err != nil {
		return false, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	n, err := a.change(ctx, "pause", args{"broker": pause.Broker, "by": Text(pause.By), "reason": Text(pause.Reason)})
	if err != nil {
		return false, a.failed(err, "pause broker %q in %s_pauses", pause.Broker, a.table)
	}
	return n > 0, nil
}

// Resume implements admin.Administration. Relays that listen go on at once.
func (a *Admin) Resume(ctx context.Context, broker string) (changed bool, err error) {
	n, err := a.change(ctx, "resume", args{"broker": broker})
	if err != nil {
		return false, a.failed(err, "resume broker %q in %s_pauses", broker, a.table)
	}
	if n > 0 {
		a.db.Changed(ctx, broker)
	}
	return n > 0, nil
}

// Pauses implements admin.Administration.
func (a *Admin) Pauses(ctx context.Context) (pauses []admin.Pause, err error) {
	err = a.read(ctx, Plain, func(ctx context.Context, conn Conn) error {
		pauses = nil
		return a.query(ctx, conn, "pauses", nil, func(scan scanner) error {
			var (
				p     admin.Pause
				since moment
			)
			err := scan(&p.Broker, &since, &p.By, &p.Reason)
			p.Since = since.Time
			pauses = append(pauses, p)
			return err
		})
	})
	if err != nil {
		return nil, a.failed(err, "list %s_pauses", a.table)
	}
	return pauses, nil
}

// Heartbeat implements driver.Delivery.
func (a *Admin) Heartbeat(ctx context.Context, instance admin.Instance) error {
	work, err := json.Marshal(heartbeatWork{instance.Work, instance.Unavailable})
	if err != nil {
		return a.failed(err, "encode the work of instance %q", instance.Name)
	}
	if _, err := a.change(ctx, "heartbeat", args{
		"instance_id": instance.ID.String(), "name": Text(instance.Name), "host": Text(instance.Host), "pid": instance.PID,
		"version": Text(instance.Version), "work": Text(work),
	}); err != nil {
		return a.failed(err, "enter instance %q in %s_instances", instance.Name, a.table)
	}
	return nil
}

// heartbeatWork is the column work.
type heartbeatWork struct {
	Batches     []admin.Work        `json:"batches,omitempty"`
	Unavailable []admin.Unavailable `json:"unavailable,omitempty"`
}

// Leave implements driver.Delivery.
func (a *Admin) Leave(ctx context.Context, id uuid.UUID) error {
	if _, err := a.change(ctx, "leave", args{"instance_id": id.String()}); err != nil {
		return a.failed(err, "remove an instance from %s_instances", a.table)
	}
	return nil
}

// Instances implements admin.Administration. It writes only where there is an instance to be
// removed.
func (a *Admin) Instances(ctx context.Context) (instances []admin.Instance, err error) {
	gone := false
	err = a.read(ctx, Plain, func(ctx context.Context, conn Conn) error {
		instances, gone = nil, false
		return a.query(ctx, conn, "instances", nil, func(scan scanner) error {
			instance, old, err := scanInstance(scan)
			if old {
				gone = true
			} else {
				instances = append(instances, instance)
			}
			return err
		})
	})
	if err != nil {
		return nil, a.failed(err, "list %s_instances", a.table)
	}
	if gone {
		if _, err := a.change(ctx, "forget_instances", nil); err != nil {
			return nil, a.failed(err, "forget old entries of %s_instances", a.table)
		}
	}
	return instances, nil
}

// clockTolerance is how far the database's clock may be from ours before times of heartbeats are put right.
const clockTolerance = 10 * time.Second

// scanInstance reads a row; old is true for one that has not been seen for a day. Whoever asks compares its times with
// a clock of its own, and must not take a relay for dead since that clock is another one: where they differ, the times
// are as ours has them. Columns of SQLite hold anything.
func scanInstance(scan scanner) (i admin.Instance, old bool, err error) {
	var (
		id, work      string
		pid           any
		started, seen moment
		there         moment
	)
	if err := scan(&id, &i.Name, &i.Host, &pid, &i.Version, &started, &seen, &work, &old, &there); err != nil {
		return i, false, err
	}
	process, ok := pid.(int64)
	if i.PID = int(process); !ok {
		spoil(&i, "pid", "is no whole number")
	}
	for _, at := range []struct {
		column string
		moment
	}{{"started_at", started}, {"seen_at", seen}} {
		if at.fault != "" {
			spoil(&i, at.column, at.fault)
		}
	}
	if off := time.Since(there.Time); off.Abs() > clockTolerance && started.fault+seen.fault == "" {
		started.Time, seen.Time = started.Add(off), seen.Add(off)
	}
	i.StartedAt, i.SeenAt = started.Time, seen.Time
	setRow(&i, id, work)
	return i, old, nil
}

// setRow fills in what the table holds as text, and notes in Unreadable what cannot be read.
func setRow(i *admin.Instance, id, work string) {
	var err error
	if i.ID, err = uuid.Parse(id); err != nil {
		spoil(i, "instance_id", fmt.Sprintf("%.50q is no UUID", id))
	}
	var works heartbeatWork
	if err = strictjson.Unmarshal([]byte(work), &works); err != nil {
		works = heartbeatWork{}
		spoil(i, "work", "is no object of batches: "+err.Error())
	}
	i.Work, i.Unavailable = works.Batches, works.Unavailable
	i.StartedAt, i.SeenAt = readable(i, "started_at", i.StartedAt), readable(i, "seen_at", i.SeenAt)
}

// readable is a time that has a form in JSON; else zero.
func readable(i *admin.Instance, column string, at time.Time) time.Time {
	at = at.UTC()
	if at.Year() < 1 || at.Year() > 9999 {
		spoil(i, column, "is outside the years 1 to 9999")
		return time.Time{}
	}
	return at
}

// spoil notes what is wrong with a column, unless another one's fault is noted already.
func spoil(i *admin.Instance, column, fault string) {
	if i.Unreadable == "" {
		i.Unreadable = "column " + column + " " + fault
	}
}
