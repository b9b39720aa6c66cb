//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// clockFile is where Go reads the clock.
const clockFile = "src/time/time.go"

// clockReadings are the texts that read it, by version of Go.
var clockReadings = []string{
	"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", // since 1.25 or so
	"func Now() Time {\n\tsec, nsec, mono := now()\n",
}

// wrongClock makes time.Now add the variable CHAOS_SKEW: the wall clock is wrong and the monotonic
// clock is right, as on a machine whose clock was set wrongly. (Tools that wrap the C library do
// not affect Go programs.)
func wrongClock(goroot string) ([]edit, error) {
	text, err := os.ReadFile(filepath.Join(goroot, clockFile))
	if err != nil {
		return nil, fmt.Errorf("chaos: the sources of Go's library: %w", err)
	}
	for _, reading := range clockReadings {
		if strings.Contains(string(text), reading) {
			return []edit{
				{clockFile, "import (\n", "import (\n\t\"syscall\"\n"},
				{clockFile, reading, reading + "\tsec += chaosSkew\n"},
				{clockFile, reading, chaosSkew + reading},
			}, nil
		}
	}
	return nil, fmt.Errorf("chaos: %s reads the clock in a way that is new: add it to clockReadings", filepath.Join(goroot, clockFile))
}

// chaosSkew becomes part of package time, which can import neither strconv nor os.
const chaosSkew = `var chaosSkew = func() int64 {
	text, _ := syscall.Getenv("CHAOS_SKEW")
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	var seconds int64
	for _, digit := range text {
		seconds = 10*seconds + int64(digit-'0')
	}
	if negative {
		return -seconds
	}
	return seconds
}()

`
