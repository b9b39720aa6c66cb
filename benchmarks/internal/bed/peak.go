package bed

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Peak is the most that this process took of the machine's memory, in bytes.
type Peak struct {
	// Heap with its garbage; Live is what was left of it by the collections of garbage.
	Heap, Live uint64
	// Resident is 0 where the system does not say.
	Resident uint64
}

// A Gauge watches the memory of this process.
type Gauge struct {
	stop chan struct{}
	done sync.WaitGroup
	peak Peak
}

// gaugeEvery is the time between two looks, each of which takes some ten microseconds.
const gaugeEvery = 5 * time.Millisecond

// Watch begins to look, once what earlier work has left was given back to the system. The caller stops the gauge.
func Watch() *Gauge {
	debug.FreeOSMemory()
	g := &Gauge{stop: make(chan struct{})}
	g.done.Go(func() {
		ticker := time.NewTicker(gaugeEvery)
		defer ticker.Stop()
		for {
			g.look()
			select {
			case <-g.stop:
				g.look()
				return
			case <-ticker.C:
			}
		}
	})
	return g
}

// Stop looks once more, ends the watch and returns the highest values that were seen.
func (g *Gauge) Stop() Peak {
	close(g.stop)
	g.done.Wait()
	return g.peak
}

func (g *Gauge) look() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	resident, _ := Resident()
	g.peak = Peak{
		Heap: max(g.peak.Heap, HeapInUse()), Live: max(g.peak.Live, live[0].Value.Uint64()), Resident: max(g.peak.Resident, resident),
	}
}
