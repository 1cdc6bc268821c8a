"""Examples at the end of each command's `--help`. They are complete command lines: a test parses every one."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("ringup list", "ringup list --json"),
    "doctor": ("ringup doctor", "ringup doctor --json"),
    "setup": ("ringup setup", "sudo ringup setup --apply", "sudo ringup setup --undo"),
    "up": (
        "ringup up",
        "ringup up virtual:navi31",
        "ringup up nvidia:0",
        "ringup up pci:0000:03:00.0 --firmware ~/firmware --json",
    ),
    "down": ("ringup down", "ringup down pci:0000:03:00.0 --awake", "ringup down usb:2-1 --off"),
    "info": ("ringup info", "ringup info virtual:navi33 --json", "ringup info nvidia:0"),
    "demo": ("ringup demo", "ringup demo usb:2-1 --out demo", "ringup demo virtual:ga102@nvidia --json"),
    "stats": ("ringup stats pci:0000:03:00.0", "ringup stats nvidia:0", "ringup stats virtual:navi31 --watch 1 --json"),
    "top": ("ringup top pci:0000:03:00.0", "ringup top virtual:navi31 --every 0.5"),
    "regs": (
        "ringup regs navi31 CP_HQD_ACTIVE",
        "ringup regs navi31 GRBM_STATUS=0x3028",
        "ringup regs virtual:navi31 GRBM_STATUS",
        "ringup regs pci:0000:03:00.0 SCRATCH_REG0=0x1234 --write",
    ),
    "mem": (
        "ringup mem virtual:navi31 read 0x0 64",
        "ringup mem pci:0000:03:00.0 read 0x100000 1M --out vram.bin",
        "ringup mem pci:0000:03:00.0 read 0x100200000 4K --space gpu --vmid 8",
        "ringup mem virtual:navi31 write 0x200000 00112233",
        "ringup mem virtual:ga102@nvidia list",
    ),
    "run": (
        "ringup run virtual:navi31 saxpy.o --grid 16 --block 256 --arg in:x.bin --arg inout:y.bin:y2.bin --arg f32:2.5",
        "ringup run virtual:navi31 kernels.o fill --items 1000 --block 64 --arg show:4000:u32 --arg u32:7",
        "ringup run virtual:ga102@nvidia kernel.cubin --grid 16 --block 256 --arg show:4K:f32",
    ),
    "trace": (
        "ringup trace virtual:navi31 --perfetto run.pftrace",
        "ringup trace virtual:navi31 --transcript session.ringup",
        "ringup trace --decode session.ringup --rows 20",
    ),
    "reset": ("ringup reset pci:0000:03:00.0", "ringup reset pci:0000:03:00.0 --first slot"),
    "report": ("ringup report pci:0000:03:00.0", "ringup report virtual:navi31 --html report.html"),
    "firmware": (
        "ringup firmware check navi31",
        "ringup firmware show gc_11_0_0_mec.bin",
        "ringup firmware check ga102 --release 570.144",
    ),
    "bridge": (
        "ringup bridge info",
        "ringup bridge backup usb:2-1 enclosure.bin",
        "ringup bridge flash usb:2-1 AS_USB4_240417_85_00_00.bin --backup enclosure.bin --dry-run",
        "ringup bridge verify usb:2-1 AS_USB4_240417_85_00_00.bin",
    ),
    "program": ("ringup program kernels.o", "ringup program kernels.o --chip navi31"),
    "decode": (
        "ringup decode pm4 ring.bin",
        "ringup decode sdma ib.txt --hex --chip navi33",
        "ringup decode nvidia push.bin --chip ad102",
    ),
    "asm": (
        "ringup asm kernel.s -o kernel.co",
        "ringup asm kernel.sass -o kernel.cubin",
        "ringup asm loop.s --raw --target gfx1201 -o loop.bin",
    ),
    "disasm": ("ringup disasm kernel.co", "ringup disasm loop.bin --raw --target gfx1201 --json"),
    "compile": ("ringup compile net.py --target gfx1201 -o net.o", "ringup compile net.py:block --json"),
    "explain": (
        "ringup explain net.py",
        "ringup explain net.py:block --kernel 2",
        "ringup explain net.py --html net.html",
    ),
    "tune": ("ringup tune net.py", "ringup tune net.py:block --card pci:0000:03:00.0"),
    "headers": ("ringup headers fetch", "ringup headers check"),
    "bench": ("ringup bench --list", "ringup bench"),
    "bind": ("ringup bind pci:0000:03:00.0 --dry-run", "ringup bind 0000:03:00.0 --driver none"),
    "unbind": ("ringup unbind pci:0000:03:00.0",),
    "serve": (
        "ringup serve usbip virtual:navi31@asm2464pd",
        "ringup serve usbip virtual:usb-loopback --port 0 --json",
        "sudo ringup serve usbip virtual:navi31@asm2464pd --attach",
    ),
    "completion": ("ringup completion bash", "ringup completion zsh"),
}
