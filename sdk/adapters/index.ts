export { actionOf } from './tool.js';
export { admitted, type AdmittedOptions } from './function.js';
export {
  NOT_ADMITTED_CODES,
  NotAdmittedError,
  type NotAdmittedCode,
  type NotAdmittedDetails,
} from './options.js';
export type {
  AdapterOptions,
  Admission,
  CommonOptions,
  Enforce,
  GateOptions,
  LostOutcome,
  Observe,
} from './options.js';
