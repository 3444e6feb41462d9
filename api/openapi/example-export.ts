import { fromBase64, fromUtf8 } from '#protocol/bytes';
import { aepSchema } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';

const PAYLOAD =
  'eyJhY2NlcHRlZF9hdCI6IjIwMjYtMTEtMjBUMTc6Mjk6MDAuMTIzWiIsImRlY2lzaW9uIjp7ImVmZmVjdCI6IkFETUlUIiwicmVhc29ucyI6WyJzYW5kYm94LXRlbmFudHMtbWF5LWFjdCJdfSwiZW52aXJvbm1lbnQiOiJzYW5kYm94IiwiZXZpZGVuY2UiOnsiZml4dHVyZV9oYXNoIjpudWxsLCJmaXh0dXJlX3JlZiI6ImZpeHR1cmUtMSJ9LCJleGVjdXRpb25faWQiOiJleGVjXzAxOWFhMmMxZTA3YjdjMGY4YTNlNWQ2YjdjOGQ5ZTBmIiwia2V5X2lkIjoia1ByS19xbXhWV2FZVkE5d3dCRjZJdW8zdlZ6ejdUeEhDVHdYQnlnclM0ayIsInBvbGljeSI6eyJkaWdlc3QiOiIwYTgxMzI1ZDRhNTJjOWMwOTE0Njk3MzExZDIyOTE0ZTIxMGU2ODdkNWM2MTFjMDE4NDYwZDA3NzRkZGFiZDllIiwiZW5naW5lIjoiY2VkYXIiLCJlbmdpbmVfdmVyc2lvbiI6IjQuMTMuMCIsImlucHV0X2hhc2giOiJhMmYzMjhmNDY5YmVlZWYwMGI5ZjYwMjdmZGJmOTIyOGIwYWZlNzRmZTgzMjY3OGMzMTFjMDRhNDFkZjFlYzU4In0sInByb29mX2lkIjoiMDE5YWEyYzFlMDdiN2MwZjhhM2U1ZDZiN2M4ZDllMGYiLCJyZXF1ZXN0X2hhc2giOiJkNDJjMTk3Njc3YjRhNThkMTVjYzA4ZTI5MDNjMTBhMzMwYWJkODBiYTM4YmY2Yzc0Y2E2NDY0NDJlY2I1NmVlIiwic2FsdCI6ImZjODFhMGZjOTE5ZGY0Mzk2NGU2MDQ2YTlkODA2MGY2Yjc2ZTRhN2IwZjJlYWQzOGIwZTY3Y2UwYWYwNDNiOTYiLCJzY2hlbWFfdmVyc2lvbiI6InN2Yy5hZXAvMS4wIiwic3ViamVjdCI6eyJhY3Rpb24iOiJCT09LX1JFU0VSVkFUSU9OIiwiaW50ZW50X2lkIjoicnVuLTcvc3RlcC0zL3LDqXNlcnZlciDinIgiLCJraW5kIjoiZXhlY3V0ZSJ9LCJ0ZW5hbnRfaWQiOiJ0ZW5hbnQtZXhhbXBsZSIsInZhbGlkX3VudGlsIjp7ImNlcnRpZmljYXRlIjoiMjAyNy0xMS0yMFQxNzoyOTowMC4xMjNaIiwicGFzc3BvcnQiOiIyMDI3LTExLTIwVDE3OjI5OjAwLjEyM1oiLCJwcm9vZiI6bnVsbCwidHJ1c3QiOiIyMDI2LTEyLTIwVDE3OjI5OjAwLjEyM1oifX0=';

// The payload of the envelope is the canonical AEP.
const aep = aepSchema.parse(JSON.parse(fromUtf8(fromBase64(PAYLOAD))));
const { proof_id, request_hash, key_id } = aep;
const aep_hash = '253162e8bb82aff2b4699770b70e57a7b84b13a54125f14e175d36b08fcecb9e';
const response_hash = '309a02574910533f412c6bfd121794a1825a9049c58a17222f01484797971200';

const envelope: ProofExport['envelope'] = {
  payloadType: 'application/vnd.svc.aep+json',
  payload: PAYLOAD,
  signatures: [
    {
      keyid: key_id,
      sig: 'XDGTPbRe1/gQEDbW6oKWBkfVzGr17B2iYCy1zpLBvL7fYxtFWYkHaXDH+0sb7gJj1fdGUKiw54EVaNmuu5EzCQ==',
    },
  ],
};

/** Source of the documentation examples: the test vector `proof-export.json`. */
export const exampleExport: ProofExport = {
  schema_version: 'svc.registry.proof_export/1.0',
  proof_id,
  aep,
  envelope,
  proof_record: {
    schema_version: 'svc.registry.proof_record/1.0',
    proof_id,
    aep_hash,
    envelope,
    request_hash,
    response_hash,
  },
  entry: {
    schema_version: 'svc.registry.entry/1.0',
    type: 'proof',
    proof_id,
    aep_hash,
    proof_record_hash: 'd992a56b14015bede73e37f2b4bddcdedc86886dadbedde46a622deb52a739a5',
    time: aep.accepted_at,
  },
  inclusion: {
    leaf_index: 1,
    tree_size: 5,
    path: [
      'lE6UOIcs46oXCrEaU6Pqn4SCegRMSE37Pjd5qcdnxDA=',
      '34kzTWQ8a9nJSoOqVqVi8UtMuN3a8WPvn8CDTF2bcZM=',
      'bkbmNPxcXGRsSSfO/wg9709dnNM0+zbeNtmTfk8lkUY=',
    ],
    checkpoint:
      'log.example/svc\n5\nU3VczhDgJnrGevILzOKYf4B9agBhe7NWfYqqHmvkPzk=\n\n— log.example/svc HHMrm/md6+Tlu0of/6192t2iodpivWH1kuRDhiciDz9wUma9vf35D3e0uy6yOASMMn+U0ZcBDAnil3tbTtFPeIg4wgI=\n',
  },
  keys: [
    {
      key_id,
      public_key: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
    },
  ],
  request_hash,
  response_hash,
  verdict: {
    verification_status: 'VALID',
    can_assert_validity: true,
    artifacts: {
      proof: 'VALID',
      passport: 'PASS',
      certificate: 'REVOKED',
      trust: 'REVOKED',
    },
    verified_at: '2026-11-22T08:00:00.050Z',
    log_size: 5,
  },
  log_vkey: 'log.example/svc+1c732b9b+AT1AF8PoQ4lakrcKp00bfrycmCzPLsSWjMDNVfEq9GYM',
};

export const EXAMPLE_PROOF_ID = exampleExport.proof_id;
