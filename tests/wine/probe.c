/* What tests run under Wine where `cmd` cannot do it: probe.exe WHAT [ARG...]. All that it says is bytes, as they are. */
#include <windows.h>
#include <shellapi.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static void say(const void *bytes, size_t count) { fwrite(bytes, 1, count, stdout); }

static void say_json(const wchar_t *text) {
    char utf8[65536];
    int count = WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8, sizeof utf8, NULL, NULL);
    putchar('"');
    for (int i = 0; i + 1 < count; i++) {
        unsigned char c = (unsigned char)utf8[i];
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 32) printf("\\u%04x", c);
        else putchar(c);
    }
    putchar('"');
}

static void say_list(wchar_t **list, int from, int count) {
    putchar('[');
    for (int i = from; i < count; i++) {
        if (i > from) putchar(',');
        say_json(list[i]);
    }
    putchar(']');
}

static int exists(const wchar_t *path) { return GetFileAttributesW(path) != INVALID_FILE_ATTRIBUTES; }

static void await(const wchar_t *path) { while (!exists(path)) Sleep(20); }

static void note(const wchar_t *path, const char *text) {
    wchar_t part[1024];
    swprintf(part, 1024, L"%ls.part", path);
    FILE *file = _wfopen(part, L"wb");
    if (!file) exit(97);
    fputs(text, file);
    fclose(file);
    MoveFileExW(part, path, MOVEFILE_REPLACE_EXISTING); /* who finds it finds all of it */
}

int wmain(int argc, wchar_t **argv) {
    const wchar_t *what = argc > 1 ? argv[1] : L"";
    _setmode(0, _O_BINARY);
    _setmode(1, _O_BINARY);
    _setmode(2, _O_BINARY);
    if (!wcscmp(what, L"args")) { /* as C programs read them, and as all others do */
        int count = 0;
        wchar_t **list = CommandLineToArgvW(GetCommandLineW(), &count);
        printf("{\"c\":");
        say_list(argv, 2, argc);
        printf(",\"shell\":");
        say_list(list, 2, count);
        printf("}");
    } else if (!wcscmp(what, L"env")) { /* one variable, null where there is none */
        wchar_t value[32768];
        if (GetEnvironmentVariableW(argv[2], value, 32768)) say_json(value);
        else printf("null");
    } else if (!wcscmp(what, L"bytes")) { /* in hexadecimal */
        for (const wchar_t *at = argv[2]; at[0] && at[1]; at += 2) {
            unsigned byte;
            swscanf(at, L"%2x", &byte);
            putchar((int)byte);
        }
    } else if (!wcscmp(what, L"fill")) { /* fill COUNT out|err|both: the period of what comes is 251 */
        long long count = wcstoll(argv[2], NULL, 10), at = 0;
        int both = !wcscmp(argv[3], L"both");
        static char block[65536];
        while (at < count) {
            long long size = count - at < (long long)sizeof block ? count - at : (long long)sizeof block;
            for (long long i = 0; i < size; i++) block[i] = (char)((at + i) % 251);
            if (both || !wcscmp(argv[3], L"out")) fwrite(block, 1, (size_t)size, stdout), fflush(stdout);
            if (both || !wcscmp(argv[3], L"err")) fwrite(block, 1, (size_t)size, stderr), fflush(stderr);
            at += size;
        }
    } else if (!wcscmp(what, L"cat")) { /* stdin to stdout; what follows is said first */
        static char block[65536];
        int count;
        for (int i = 2; i < argc; i++) printf("%ls\n", argv[i]);
        fflush(stdout);
        while ((count = _read(0, block, sizeof block)) > 0) say(block, (size_t)count), fflush(stdout);
    } else if (!wcscmp(what, L"wait")) { /* for a file */
        await(argv[2]);
    } else if (!wcscmp(what, L"write")) { /* write FILE GO: 300,000 bytes, as many once GO is there; FILE: how it went */
        static char block[300000];
        DWORD done = 0;
        HANDLE out = GetStdHandle(STD_OUTPUT_HANDLE);
        BOOL whole = WriteFile(out, block, sizeof block, &done, NULL) && done == sizeof block;
        note(argv[2], whole ? "half" : "broken");
        await(argv[3]);
        whole = whole && WriteFile(out, block, sizeof block, &done, NULL) && done == sizeof block;
        note(argv[2], whole ? "whole" : "broken");
    } else if (!wcscmp(what, L"start")) { /* start LINE: another program, with these streams, and ends at once */
        STARTUPINFOW info = {.cb = sizeof info};
        PROCESS_INFORMATION made;
        if (!CreateProcessW(NULL, argv[2], NULL, NULL, TRUE, 0, NULL, NULL, &info, &made)) return 96;
        printf("started\n");
    } else if (!wcscmp(what, L"escape")) { /* escape LINE: another program outside of the job and the console; waits for ever */
        STARTUPINFOW info = {.cb = sizeof info};
        PROCESS_INFORMATION made;
        BOOL away = CreateProcessW(NULL, argv[2], NULL, NULL, FALSE, CREATE_BREAKAWAY_FROM_JOB | CREATE_NO_WINDOW, NULL, NULL, &info, &made);
        printf(away ? "away\n" : "refused\n");
        fflush(stdout);
        Sleep(INFINITE);
    } else if (!wcscmp(what, L"hold")) { /* hold FILE READY: keeps others from removing FILE for a moment */
        HANDLE file = CreateFileW(argv[2], GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
        if (file == INVALID_HANDLE_VALUE) return 93;
        note(argv[3], "held");
        Sleep(300);
    } else if (!wcscmp(what, L"crash")) { /* what Windows does with a program that writes where nothing is */
        fflush(stdout);
        *(volatile int *)8 = 1;
    } else if (!wcscmp(what, L"stop")) { /* asks the agent with this number to end */
        wchar_t name[256];
        swprintf(name, 256, L"%ls%ls", argv[2], argv[3]);
        HANDLE event = OpenEventW(EVENT_MODIFY_STATE, FALSE, name);
        return event && SetEvent(event) ? 0 : 95;
    } else if (!wcscmp(what, L"console")) { /* the handles that a program in a console begins with */
        DWORD mode;
        HANDLE console = CreateFileW(L"CONOUT$", GENERIC_READ | GENERIC_WRITE, 3, NULL, OPEN_EXISTING, 0, NULL);
        printf("in %d out %d err %d screen %d\n", GetConsoleMode(GetStdHandle(STD_INPUT_HANDLE), &mode),
               GetConsoleMode(GetStdHandle(STD_OUTPUT_HANDLE), &mode), GetConsoleMode(GetStdHandle(STD_ERROR_HANDLE), &mode),
               console != INVALID_HANDLE_VALUE);
        if (console != INVALID_HANDLE_VALUE) {
            WriteConsoleW(console, L"on the screen\r\n", 15, &mode, NULL);
            Sleep(100);
        }
        return 3;
    } else {
        return 98;
    }
    fflush(stdout);
    return 0;
}
