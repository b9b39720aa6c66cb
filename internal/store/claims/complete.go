package claims

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// completeAround writes a completion of which another session has locked a row, as met says: at once
// what is free, and the rest again and again until it is, for as long as patience lasts. Then it claims.
func completeAround(ctx context.Context, s Store, completion *driver.Completion, claim *driver.Claim, met error) (answer Answer, err error) {
	done, parts, began := &driver.Completed{}, []driver.Completion{*completion}, time.Now()
	for try := 1; ; try++ {
		if parts, met, err = completeFree(ctx, s, parts, met, done); err != nil {
			return Answer{}, err
		}
		if len(parts) == 0 {
			break
		}
		if err := contention.Pause(ctx, began, try, met); err != nil {
			return Answer{}, err
		}
	}
	if claim != nil {
		answer, err = s.Exchange(ctx, nil, claim)
	}
	answer.Completed = done
	return answer, err
}

// completeFree writes parts of a completion, in halves where a row is locked. It returns the rows that
// are, each as a part of its own, with the last error that says so.
func completeFree(ctx context.Context, s Store, parts []driver.Completion, met error, done *driver.Completed) (locked []driver.Completion, _, err error) {
	parts = slices.Clone(parts)
	for len(parts) > 0 {
		part := parts[0]
		answer, err := s.Exchange(ctx, &part, nil)
		parts = parts[1:]
		switch {
		case err == nil:
			done.Lost += answer.Completed.Lost
		case !errors.Is(err, ErrLocked):
			return nil, met, err
		case len(part.Published)+len(part.Other) > 1:
			first, second := halves(&part)
			parts = append([]driver.Completion{first, second}, parts...)
		default:
			locked, met = append(locked, part), err
		}
	}
	return locked, met, nil
}

// halves divides a completion of several rows. What was published stays before the rest.
func halves(c *driver.Completion) (first, second driver.Completion) {
	first, second = *c, *c
	half := (len(c.Published) + len(c.Other)) / 2
	published := min(half, len(c.Published))
	first.Published, second.Published = c.Published[:published], c.Published[published:]
	first.Other, second.Other = c.Other[:half-published], c.Other[half-published:]
	return first, second
}
