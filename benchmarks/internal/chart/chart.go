// Package chart draws bars for people: as SVG and as PNG, on no background, in colours that are
// distinguished on white and on black.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Kind of a bar, which decides on its colour.
type Kind int

// The kinds.
const (
	Limit Kind = iota // what could be reached
	Ours
	Other
	kinds
)

// Bar is one value.
type Bar struct {
	Label string
	Value float64
	Kind  Kind
}

// Chart is a list of bars, the first at the top.
type Chart struct {
	Title string
	// Kinds are what the legend says of each kind; a kind without a bar is left out.
	Kinds [kinds]string
	Bars  []Bar
	// Note is a line below.
	Note string
}

// Check refuses files of which the form is not known by their name.
func Check(path string) error {
	if form(path) == "" {
		return fmt.Errorf("chart %q: use a name that ends with .svg or .png", path)
	}
	return nil
}

func form(path string) string {
	switch extension := strings.ToLower(filepath.Ext(path)); extension {
	case ".svg", ".png":
		return extension
	default:
		return ""
	}
}

// Sizes, in points.
const (
	width     = 760
	margin    = 16
	labels    = 230 // room for what is in front of the bars
	values    = 70  // room for what is behind them
	titleSize = 15
	textSize  = 12
	noteSize  = 10
	row       = 25
	thick     = 16
	head      = 72 // title and legend
	foot      = 34
	swatch    = 11
	dpi       = 192 // of the PNG
	lift      = 0.1 // of its size by which text stands higher than its box, so that small letters and digits look centred
)

// ink has a contrast of 4 and more to white and to the black of dark pages.
var ink = color.NRGBA{R: 0x6e, G: 0x77, B: 0x81, A: 0xff}

var colours = [kinds]color.NRGBA{
	Limit: {R: 0x9a, G: 0xa4, B: 0xae, A: 0xff},
	Ours:  {R: 0x1f, G: 0x7a, B: 0xec, A: 0xff},
	Other: {R: 0xd9, G: 0x7b, B: 0x1c, A: 0xff},
}

// Write draws the chart into a file, whose name says in which form.
func (c *Chart) Write(path string) error {
	if err := Check(path); err != nil {
		return err
	}
	height := vg.Points(head + foot + float64(row*len(c.Bars)))
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if form(path) == ".svg" {
		canvas = vgsvg.New(vg.Points(width), height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(
			vgimg.UseWH(vg.Points(width), height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.Transparent))}
	}
	c.draw(&pen{Canvas: draw.New(canvas), texts: text.Plain{Fonts: font.NewCache(liberation.Collection())}})
	var drawn bytes.Buffer
	if _, err := canvas.WriteTo(&drawn); err != nil {
		return err
	}
	// A browser that does not have the font takes one with the same widths.
	content := bytes.ReplaceAll(drawn.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	file, err := os.Create(path) //nolint:gosec // the file that the caller asks for
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// pen draws on a canvas, whose origin is at the bottom.
type pen struct {
	draw.Canvas

	texts text.Handler
}

func (c *Chart) draw(p *pen) {
	top := p.Max.Y
	p.write(c.Title, vg.Points(margin), top-vg.Points(22), titleSize, true, draw.XLeft)
	c.legend(p, top-vg.Points(48))
	var longest float64
	for _, bar := range c.Bars {
		longest = max(longest, bar.Value)
	}
	left, room := vg.Points(labels), p.Max.X-vg.Points(labels+values)
	y := top - vg.Points(head+row/2.0)
	for _, bar := range c.Bars {
		p.write(bar.Label, left-vg.Points(10), y, textSize, bar.Kind == Ours, draw.XRight)
		end := left + vg.Length(bar.Value/longest)*room
		p.bar(colours[bar.Kind], left, end, y)
		p.write(thousands(bar.Value), end+vg.Points(7), y, textSize, bar.Kind == Ours, draw.XLeft)
		y -= vg.Points(row)
	}
	p.write(c.Note, vg.Points(margin), vg.Points(margin), noteSize, false, draw.XLeft)
}

func (c *Chart) legend(p *pen, y vg.Length) {
	x := vg.Points(margin)
	for kind, name := range c.Kinds {
		used := false
		for _, bar := range c.Bars {
			used = used || bar.Kind == Kind(kind)
		}
		if !used {
			continue
		}
		half := vg.Points(swatch / 2.0)
		p.FillPolygon(colours[kind], []vg.Point{{X: x, Y: y - half}, {X: x + 2*half, Y: y - half}, {X: x + 2*half, Y: y + half}, {X: x, Y: y + half}})
		x += 2*half + vg.Points(6)
		x += p.write(name, x, y, textSize, false, draw.XLeft) + vg.Points(22)
	}
}

// bar fills a bar, however short, so that it is seen.
func (p *pen) bar(fill color.Color, from, to, y vg.Length) {
	to = max(to, from+vg.Points(1))
	half := vg.Points(thick / 2.0)
	p.FillPolygon(fill, []vg.Point{{X: from, Y: y - half}, {X: to, Y: y - half}, {X: to, Y: y + half}, {X: from, Y: y + half}})
}

// write puts a line of text where its middle is at y, and returns how long it is.
func (p *pen) write(line string, x, y vg.Length, size float64, bold bool, align text.XAlignment) vg.Length {
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
	if bold {
		face.Weight = xfont.WeightBold
	}
	style := draw.TextStyle{Color: ink, Font: face, XAlign: align, YAlign: draw.YCenter, Handler: p.texts}
	p.FillText(style, vg.Point{X: x, Y: y + vg.Points(size*lift)}, line)
	return style.Width(line)
}

// thousands writes three digits that mean something, with commas.
func thousands(value float64) string {
	if value < 10 {
		return strconv.FormatFloat(value, 'f', 2, 64)
	}
	unit := math.Pow10(max(0, int(math.Log10(value))-2))
	digits := strconv.Itoa(int(math.Round(value/unit) * unit))
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
