// Package golden knows when golden files are to be written anew.
package golden

import (
	"fmt"
	"os"
	"strconv"
)

// Variable of the environment: true, or another word of [strconv.ParseBool] for it, has golden files written
// anew; false, or nothing, has them compared.
const Variable = "FANOUT_UPDATE_GOLDEN"

// Update reports whether golden files are to be written. The error is for a value of [Variable] that is neither
// true nor false.
func Update() (bool, error) {
	text := os.Getenv(Variable)
	if text == "" {
		return false, nil
	}
	update, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s is %.60q: set it to 1 to write golden files, to 0 or not at all to compare them", Variable, text)
	}
	return update, nil
}
