// Command first is the program of the README: it is there word for word.
package main
