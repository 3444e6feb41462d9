/** The `schema_version` of every document, all at 1.0. */
export const SCHEMA = {
  executeRequest: 'svc.runtime.intent_execute.request/1.0',
  executeReceipt: 'svc.runtime.intent_execute.response/1.0',
  admissionStatus: 'svc.runtime.admission_status/1.0',
  aep: 'svc.aep/1.0',
  proofRecord: 'svc.registry.proof_record/1.0',
  logEntry: 'svc.registry.entry/1.0',
  inclusion: 'svc.registry.inclusion/1.0',
  proofView: 'svc.registry.proof_view/1.0',
  proofExport: 'svc.registry.proof_export/1.0',
  facade: 'svc.public_verification.facade/1.0',
  notFound: 'svc.public_verification.not_found/1.0',
  lookupRequest: 'svc.public_verification.lookup_request/1.0',
} as const;
