import type { ProofExport } from '#protocol/schemas/proof-export';

/** Source of the documentation examples: the test vector `proof-export.json`. */
export const exampleExport: ProofExport = {
  schema_version: 'svc.registry.proof_export/1.0',
  proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
  aep: {
    schema_version: 'svc.aep/1.0',
    execution_id: 'exec_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    environment: 'sandbox',
    tenant_id: 'tenant-example',
    subject: {
      kind: 'execute',
      intent_id: 'run-7/step-3/réserver ✈',
      action: 'BOOK_RESERVATION',
    },
    request_hash: 'd42c197677b4a58d15cc08e2903c10a330abd80ba38bf6c74ca646442ecb56ee',
    decision: {
      effect: 'ADMIT',
      reasons: ['sandbox-tenants-may-act'],
    },
    policy: {
      digest: '0a81325d4a52c9c0914697311d22914e210e687d5c611c018460d0774ddabd9e',
      input_hash: 'a2f328f469beeef00b9f6027fdbf9228b0afe74fe832678c311c04a41df1ec58',
      engine: 'cedar',
      engine_version: '4.13.0',
    },
    evidence: {
      fixture_ref: 'fixture-1',
      fixture_hash: null,
    },
    valid_until: {
      proof: null,
      certificate: '2027-11-20T17:29:00.123Z',
      passport: '2027-11-20T17:29:00.123Z',
      trust: '2026-12-20T17:29:00.123Z',
    },
    accepted_at: '2026-11-20T17:29:00.123Z',
    salt: 'fc81a0fc919df43964e6046a9d8060f6b76e4a7b0f2ead38b0e67ce0af043b96',
    key_id: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
  },
  envelope: {
    payloadType: 'application/vnd.svc.aep+json',
    payload:
      'eyJhY2NlcHRlZF9hdCI6IjIwMjYtMTEtMjBUMTc6Mjk6MDAuMTIzWiIsImRlY2lzaW9uIjp7ImVmZmVjdCI6IkFETUlUIiwicmVhc29ucyI6WyJzYW5kYm94LXRlbmFudHMtbWF5LWFjdCJdfSwiZW52aXJvbm1lbnQiOiJzYW5kYm94IiwiZXZpZGVuY2UiOnsiZml4dHVyZV9oYXNoIjpudWxsLCJmaXh0dXJlX3JlZiI6ImZpeHR1cmUtMSJ9LCJleGVjdXRpb25faWQiOiJleGVjXzAxOWFhMmMxZTA3YjdjMGY4YTNlNWQ2YjdjOGQ5ZTBmIiwia2V5X2lkIjoia1ByS19xbXhWV2FZVkE5d3dCRjZJdW8zdlZ6ejdUeEhDVHdYQnlnclM0ayIsInBvbGljeSI6eyJkaWdlc3QiOiIwYTgxMzI1ZDRhNTJjOWMwOTE0Njk3MzExZDIyOTE0ZTIxMGU2ODdkNWM2MTFjMDE4NDYwZDA3NzRkZGFiZDllIiwiZW5naW5lIjoiY2VkYXIiLCJlbmdpbmVfdmVyc2lvbiI6IjQuMTMuMCIsImlucHV0X2hhc2giOiJhMmYzMjhmNDY5YmVlZWYwMGI5ZjYwMjdmZGJmOTIyOGIwYWZlNzRmZTgzMjY3OGMzMTFjMDRhNDFkZjFlYzU4In0sInByb29mX2lkIjoiMDE5YWEyYzFlMDdiN2MwZjhhM2U1ZDZiN2M4ZDllMGYiLCJyZXF1ZXN0X2hhc2giOiJkNDJjMTk3Njc3YjRhNThkMTVjYzA4ZTI5MDNjMTBhMzMwYWJkODBiYTM4YmY2Yzc0Y2E2NDY0NDJlY2I1NmVlIiwic2FsdCI6ImZjODFhMGZjOTE5ZGY0Mzk2NGU2MDQ2YTlkODA2MGY2Yjc2ZTRhN2IwZjJlYWQzOGIwZTY3Y2UwYWYwNDNiOTYiLCJzY2hlbWFfdmVyc2lvbiI6InN2Yy5hZXAvMS4wIiwic3ViamVjdCI6eyJhY3Rpb24iOiJCT09LX1JFU0VSVkFUSU9OIiwiaW50ZW50X2lkIjoicnVuLTcvc3RlcC0zL3LDqXNlcnZlciDinIgiLCJraW5kIjoiZXhlY3V0ZSJ9LCJ0ZW5hbnRfaWQiOiJ0ZW5hbnQtZXhhbXBsZSIsInZhbGlkX3VudGlsIjp7ImNlcnRpZmljYXRlIjoiMjAyNy0xMS0yMFQxNzoyOTowMC4xMjNaIiwicGFzc3BvcnQiOiIyMDI3LTExLTIwVDE3OjI5OjAwLjEyM1oiLCJwcm9vZiI6bnVsbCwidHJ1c3QiOiIyMDI2LTEyLTIwVDE3OjI5OjAwLjEyM1oifX0=',
    signatures: [
      {
        keyid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
        sig: 'XDGTPbRe1/gQEDbW6oKWBkfVzGr17B2iYCy1zpLBvL7fYxtFWYkHaXDH+0sb7gJj1fdGUKiw54EVaNmuu5EzCQ==',
      },
    ],
  },
  proof_record: {
    schema_version: 'svc.registry.proof_record/1.0',
    proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    aep_hash: '253162e8bb82aff2b4699770b70e57a7b84b13a54125f14e175d36b08fcecb9e',
    envelope: {
      payloadType: 'application/vnd.svc.aep+json',
      payload:
        'eyJhY2NlcHRlZF9hdCI6IjIwMjYtMTEtMjBUMTc6Mjk6MDAuMTIzWiIsImRlY2lzaW9uIjp7ImVmZmVjdCI6IkFETUlUIiwicmVhc29ucyI6WyJzYW5kYm94LXRlbmFudHMtbWF5LWFjdCJdfSwiZW52aXJvbm1lbnQiOiJzYW5kYm94IiwiZXZpZGVuY2UiOnsiZml4dHVyZV9oYXNoIjpudWxsLCJmaXh0dXJlX3JlZiI6ImZpeHR1cmUtMSJ9LCJleGVjdXRpb25faWQiOiJleGVjXzAxOWFhMmMxZTA3YjdjMGY4YTNlNWQ2YjdjOGQ5ZTBmIiwia2V5X2lkIjoia1ByS19xbXhWV2FZVkE5d3dCRjZJdW8zdlZ6ejdUeEhDVHdYQnlnclM0ayIsInBvbGljeSI6eyJkaWdlc3QiOiIwYTgxMzI1ZDRhNTJjOWMwOTE0Njk3MzExZDIyOTE0ZTIxMGU2ODdkNWM2MTFjMDE4NDYwZDA3NzRkZGFiZDllIiwiZW5naW5lIjoiY2VkYXIiLCJlbmdpbmVfdmVyc2lvbiI6IjQuMTMuMCIsImlucHV0X2hhc2giOiJhMmYzMjhmNDY5YmVlZWYwMGI5ZjYwMjdmZGJmOTIyOGIwYWZlNzRmZTgzMjY3OGMzMTFjMDRhNDFkZjFlYzU4In0sInByb29mX2lkIjoiMDE5YWEyYzFlMDdiN2MwZjhhM2U1ZDZiN2M4ZDllMGYiLCJyZXF1ZXN0X2hhc2giOiJkNDJjMTk3Njc3YjRhNThkMTVjYzA4ZTI5MDNjMTBhMzMwYWJkODBiYTM4YmY2Yzc0Y2E2NDY0NDJlY2I1NmVlIiwic2FsdCI6ImZjODFhMGZjOTE5ZGY0Mzk2NGU2MDQ2YTlkODA2MGY2Yjc2ZTRhN2IwZjJlYWQzOGIwZTY3Y2UwYWYwNDNiOTYiLCJzY2hlbWFfdmVyc2lvbiI6InN2Yy5hZXAvMS4wIiwic3ViamVjdCI6eyJhY3Rpb24iOiJCT09LX1JFU0VSVkFUSU9OIiwiaW50ZW50X2lkIjoicnVuLTcvc3RlcC0zL3LDqXNlcnZlciDinIgiLCJraW5kIjoiZXhlY3V0ZSJ9LCJ0ZW5hbnRfaWQiOiJ0ZW5hbnQtZXhhbXBsZSIsInZhbGlkX3VudGlsIjp7ImNlcnRpZmljYXRlIjoiMjAyNy0xMS0yMFQxNzoyOTowMC4xMjNaIiwicGFzc3BvcnQiOiIyMDI3LTExLTIwVDE3OjI5OjAwLjEyM1oiLCJwcm9vZiI6bnVsbCwidHJ1c3QiOiIyMDI2LTEyLTIwVDE3OjI5OjAwLjEyM1oifX0=',
      signatures: [
        {
          keyid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
          sig: 'XDGTPbRe1/gQEDbW6oKWBkfVzGr17B2iYCy1zpLBvL7fYxtFWYkHaXDH+0sb7gJj1fdGUKiw54EVaNmuu5EzCQ==',
        },
      ],
    },
    request_hash: 'd42c197677b4a58d15cc08e2903c10a330abd80ba38bf6c74ca646442ecb56ee',
    response_hash: '309a02574910533f412c6bfd121794a1825a9049c58a17222f01484797971200',
  },
  entry: {
    schema_version: 'svc.registry.entry/1.0',
    type: 'proof',
    proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    aep_hash: '253162e8bb82aff2b4699770b70e57a7b84b13a54125f14e175d36b08fcecb9e',
    proof_record_hash: 'd992a56b14015bede73e37f2b4bddcdedc86886dadbedde46a622deb52a739a5',
    time: '2026-11-20T17:29:00.123Z',
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
      key_id: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
      public_key: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
    },
  ],
  request_hash: 'd42c197677b4a58d15cc08e2903c10a330abd80ba38bf6c74ca646442ecb56ee',
  response_hash: '309a02574910533f412c6bfd121794a1825a9049c58a17222f01484797971200',
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
