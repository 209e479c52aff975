//! The agent as a service: what the service manager and this process say to each other.
//!
//! Implementation note: the manager starts a service again whose process is gone, or which has said that it failed, if it
//! has been told to. Each start tells it so, whoever has registered the service.
//!
//! UNSAFETY: the manager's functions take handles and texts, which live across each call; what is handed to it for later,
//! the control function's context, is never freed.
#![expect(unsafe_code, reason = "the service manager has no safe form")]

use std::{
    ffi::c_void,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::mpsc;
use windows_sys::Win32::{
    Foundation::{
        ERROR_CALL_NOT_IMPLEMENTED, ERROR_FAILED_SERVICE_CONTROLLER_CONNECT, ERROR_SERVICE_SPECIFIC_ERROR, NO_ERROR,
    },
    System::Services::{
        ChangeServiceConfig2W, CloseServiceHandle, OpenSCManagerW, OpenServiceW, RegisterServiceCtrlHandlerExW,
        SC_ACTION, SC_ACTION_RESTART, SC_HANDLE, SC_MANAGER_CONNECT, SERVICE_ACCEPT_SHUTDOWN, SERVICE_ACCEPT_STOP,
        SERVICE_CHANGE_CONFIG, SERVICE_CONFIG_FAILURE_ACTIONS, SERVICE_CONFIG_FAILURE_ACTIONS_FLAG,
        SERVICE_CONTROL_INTERROGATE, SERVICE_CONTROL_SHUTDOWN, SERVICE_CONTROL_STOP, SERVICE_FAILURE_ACTIONS_FLAG,
        SERVICE_FAILURE_ACTIONSW, SERVICE_RUNNING, SERVICE_START, SERVICE_STATUS, SERVICE_STATUS_HANDLE,
        SERVICE_STOP_PENDING, SERVICE_STOPPED, SERVICE_TABLE_ENTRYW, SERVICE_WIN32_OWN_PROCESS, SetServiceStatus,
        StartServiceCtrlDispatcherW,
    },
};

use crate::guest::signals::{ServiceStart, StopRequests};

/// What the service does until it is to stop; its exit code.
type Body = Box<dyn FnOnce(ServiceStart) -> u8 + Send>;

/// How long the manager may have to wait for the end: the drain, the kills, the farewells.
const STOP_HINT_MS: u32 = 30_000;

/// The pauses before a failed service is started again, in milliseconds; the last goes on.
const PAUSES_MS: [u32; 3] = [1_000, 5_000, 60_000];

/// A service that has run so long was well, in seconds: its failure is a first one again.
const STEADY_SEC: u32 = 300;

/// Rust's own exit code for a panic.
const PANICKED: u8 = 101;

/// For the manager's thread, which is given nothing but the service's name.
static BODY: Mutex<Option<Body>> = Mutex::new(None);

/// How the service ended.
static CODE: AtomicU8 = AtomicU8::new(0);

/// Lets the service manager, which has started this process, run `body`, and returns what that returned.
///
/// # Errors
/// When this process was not started by the manager.
pub fn as_service(body: impl FnOnce(ServiceStart) -> u8 + Send + 'static) -> io::Result<u8> {
    *BODY.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(body));
    let mut name = [0_u16]; // a process with one service need not tell which
    let table = [
        SERVICE_TABLE_ENTRYW { lpServiceName: name.as_mut_ptr(), lpServiceProc: Some(service_main) },
        SERVICE_TABLE_ENTRYW::default(),
    ];
    // SAFETY: the table ends with an empty entry, and lives until the call returns, which is once the service has ended.
    if unsafe { StartServiceCtrlDispatcherW(table.as_ptr()) } == 0 {
        let error = io::Error::last_os_error();
        return Err(if error.raw_os_error() == Some(ERROR_FAILED_SERVICE_CONTROLLER_CONNECT.cast_signed()) {
            io::Error::other("--service is for the service manager to start; leave it out")
        } else {
            error
        });
    }
    Ok(CODE.load(Ordering::SeqCst))
}

/// The manager's thread.
unsafe extern "system" fn service_main(count: u32, arguments: *mut *mut u16) {
    let Some(body) = BODY.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let name: *const u16 = if count > 0 && !arguments.is_null() {
        // SAFETY: the manager gives that many texts, of which the first is the service's name.
        unsafe { *arguments }
    } else {
        [0_u16].as_ptr()
    };
    let (sender, requests) = StopRequests::channel();
    let told: &'static Told = Box::leak(Box::new(Told { requests: sender, status: Mutex::new(None) }));
    // SAFETY: the name ends with a zero; the context is never freed.
    let handle = unsafe { RegisterServiceCtrlHandlerExW(name, Some(control), ptr::from_ref(told).cast()) };
    if handle.is_null() {
        CODE.store(1, Ordering::SeqCst);
        return;
    }
    told.set(Some(Handle(handle)));
    told.report(SERVICE_RUNNING, 0);
    // only now: while it starts a service the manager takes no other orders
    let recovery = restart_if_it_fails(name);
    let start = ServiceStart { requests, restarts: recovery.is_ok(), recovery };
    let code = catch_unwind(AssertUnwindSafe(|| body(start))).unwrap_or(PANICKED);
    CODE.store(code, Ordering::SeqCst);
    told.report(SERVICE_STOPPED, code);
}

/// The manager's orders.
unsafe extern "system" fn control(order: u32, _kind: u32, _data: *mut c_void, context: *mut c_void) -> u32 {
    // SAFETY: the context is what `service_main` gave, which is never freed.
    let told = unsafe { &*context.cast_const().cast::<Told>() };
    match order {
        SERVICE_CONTROL_STOP | SERVICE_CONTROL_SHUTDOWN => {
            told.report(SERVICE_STOP_PENDING, 0);
            // those beyond the bound say nothing new
            let _ = told.requests.try_send(());
            NO_ERROR
        }
        SERVICE_CONTROL_INTERROGATE => NO_ERROR,
        _ => ERROR_CALL_NOT_IMPLEMENTED,
    }
}

/// Where the manager is told how the service is. It is never closed.
#[derive(Clone, Copy)]
struct Handle(SERVICE_STATUS_HANDLE);

// SAFETY: it is a number for the manager, which any thread may use.
unsafe impl Send for Handle {}

/// What the manager's threads share.
struct Told {
    requests: mpsc::Sender<()>,
    /// `None` before it is known, and once the end has been told: nothing may follow that.
    status: Mutex<Option<Handle>>,
}

impl Told {
    fn set(&self, handle: Option<Handle>) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    fn report(&self, state: u32, code: u8) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Handle(handle)) = *status else { return };
        let is_running = state == SERVICE_RUNNING;
        let report = SERVICE_STATUS {
            dwServiceType: SERVICE_WIN32_OWN_PROCESS,
            dwCurrentState: state,
            dwControlsAccepted: if is_running { SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_SHUTDOWN } else { 0 },
            dwWin32ExitCode: if code == 0 { NO_ERROR } else { ERROR_SERVICE_SPECIFIC_ERROR },
            dwServiceSpecificExitCode: code.into(),
            dwCheckPoint: 0,
            dwWaitHint: if state == SERVICE_STOP_PENDING { STOP_HINT_MS } else { 0 },
        };
        // SAFETY: the handle is the manager's, and the report lives across the call.
        unsafe { SetServiceStatus(handle, &raw const report) };
        if state == SERVICE_STOPPED {
            *status = None;
        }
    }
}

/// An open handle of the manager's; dropping it closes it.
struct Opened(SC_HANDLE);

impl Opened {
    fn checked(handle: SC_HANDLE) -> io::Result<Self> {
        if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(Self(handle)) }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is closed once.
        unsafe { CloseServiceHandle(self.0) };
    }
}

/// Tells the manager to start the service again where it fails: where its process is gone, or has ended with a code
/// that is not 0.
fn restart_if_it_fails(name: *const u16) -> io::Result<()> {
    // SAFETY: nulls stand for this machine and its only database.
    let manager = Opened::checked(unsafe { OpenSCManagerW(ptr::null(), ptr::null(), SC_MANAGER_CONNECT) })?;
    // SAFETY: the manager is open; the name ends with a zero. To have it started takes the right to start it.
    let service = unsafe { OpenServiceW(manager.0, name, SERVICE_CHANGE_CONFIG | SERVICE_START) };
    let service = Opened::checked(service)?;
    let mut actions = PAUSES_MS.map(|delay| SC_ACTION { Type: SC_ACTION_RESTART, Delay: delay });
    let failures = SERVICE_FAILURE_ACTIONSW {
        dwResetPeriod: STEADY_SEC,
        lpRebootMsg: ptr::null_mut(),
        lpCommand: ptr::null_mut(),
        cActions: PAUSES_MS.len() as u32,
        lpsaActions: actions.as_mut_ptr(),
    };
    let ended_badly = SERVICE_FAILURE_ACTIONS_FLAG { fFailureActionsOnNonCrashFailures: 1 };
    let change = |what, how: *const c_void| {
        // SAFETY: the service is open; each level is given its own structure, which lives across the call.
        if unsafe { ChangeServiceConfig2W(service.0, what, how) } == 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    let failures = change(SERVICE_CONFIG_FAILURE_ACTIONS, (&raw const failures).cast());
    // without it only the end of the process counts, which is much
    let ended_badly = change(SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, (&raw const ended_badly).cast());
    failures.and(ended_badly)
}
