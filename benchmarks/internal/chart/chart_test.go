package chart_test

import (
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/benchmarks/internal/chart"
)

func sample() *chart.Chart {
	return &chart.Chart{
		Title: "Messages & more", Kinds: [3]string{"the limit", "ours", "others"}, Note: "a note",
		Bars: []chart.Bar{{"by hand", 40_044, chart.Limit}, {"fanout", 20_000, chart.Ours}, {"another", 10_000, chart.Other}, {"slow", 1.5, chart.Other}},
	}
}

// The drawing holds each text once, and is XML.
func TestSVG(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chart.svg")
	require.NoError(t, sample().Write(path))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	texts := map[string]int{}
	for decoder := xml.NewDecoder(file); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if data, is := token.(xml.CharData); is {
			texts[string(data)]++
		}
	}
	for _, want := range []string{
		"Messages & more", "the limit", "ours", "others", "a note", "by hand", "40,000", "fanout", "20,000", "another", "10,000", "slow", "1.50",
	} {
		assert.Equal(t, 1, texts[want], want)
	}
}

// Each bar has the colour of its kind, and a length in proportion to its value, on no background.
func TestPNG(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "chart.png")
	require.NoError(t, sample().Write(path))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	picture, err := png.Decode(file)
	require.NoError(t, err)
	longest := map[color.NRGBA]int{} // by colour, the longest row of it
	for y := range picture.Bounds().Dy() {
		row := map[color.NRGBA]int{}
		for x := range picture.Bounds().Dx() {
			row[color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)]++
		}
		for c, n := range row {
			longest[c] = max(longest[c], n)
		}
	}
	limit, ours, others := longest[color.NRGBA{0x9a, 0xa4, 0xae, 0xff}], longest[color.NRGBA{0x1f, 0x7a, 0xec, 0xff}], longest[color.NRGBA{0xd9, 0x7b, 0x1c, 0xff}]
	assert.Greater(t, limit, 500)
	assert.InDelta(t, limit/2, ours, 4)
	assert.InDelta(t, limit/4, others, 3)
	assert.Equal(t, picture.Bounds().Dx(), longest[color.NRGBA{}], "the margin is clear")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, chart.Check("a.SVG"))
	require.ErrorContains(t, chart.Check("a.pdf"), `chart "a.pdf": use a name that ends with .svg or .png`)
	require.Error(t, sample().Write(filepath.Join(t.TempDir(), "chart")))
}
