package chaos

// maxrssUnit is what the kernel counts a process's memory in.
const maxrssUnit = 1 << 10
