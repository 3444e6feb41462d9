{{- define "svc.labels" -}}
app.kubernetes.io/name: svc-verification
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* A container and its volumes: read-only, without capabilities, with the named secrets as files. */}}
{{- define "svc.pod" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .name }}
automountServiceAccountToken: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  # The default, Always, would set the group of every file of the snapshot at each start.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "svc.container" -}}
image: {{ required "set image to the image of Dockerfile" .root.Values.image }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  - { name: secrets, mountPath: /run/secrets, readOnly: true }
  {{- if and .snapshot (not .root.Values.snapshotStore) }}
  - { name: snapshot, mountPath: /srv/public, readOnly: {{ ne .snapshot "write" }} }
  {{- end }}
  {{- if .state }}
  - { name: state, mountPath: /srv/state }
  {{- end }}
{{- with .envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "svc.volumes" -}}
- name: tmp
  emptyDir: { sizeLimit: 64Mi }
- name: secrets
  projected:
    # Because the pod has an fsGroup, Kubernetes also lets the group read these files.
    defaultMode: 0400
    sources:
      {{- range .secrets }}
      - secret: { name: {{ printf "svc-%s" (replace "." "-" .) }}, items: [{ key: {{ . }}, path: {{ . }} }] }
      {{- end }}
{{- if and .snapshot (not .root.Values.snapshotStore) }}
- name: snapshot
  persistentVolumeClaim: { claimName: {{ .root.Values.snapshotClaim }}, readOnly: {{ ne .snapshot "write" }} }
{{- end }}
{{- if .state }}
- name: state
  persistentVolumeClaim: { claimName: {{ .root.Release.Name }}-{{ .name }} }
{{- end }}
{{- end }}

{{- define "svc.env" -}}
{{- $env := dict
  "LOG_ORIGIN" (required "set logOrigin to the permanent name of the log" .root.Values.logOrigin)
  "PUBLIC_URL" (required "set publicUrl to the public URL of the public API" .root.Values.publicUrl)
  "LISTEN_ADDRESS" "0.0.0.0" "OPS_BIND" "0.0.0.0" "OPS_PORT" "9464"
  "SHUTDOWN_DELAY" "10s" "DATA_DIR" "/tmp" }}
{{- range $name, $value := .root.Values.settings }}
{{- $_ := set $env $name $value }}
{{- end }}
{{- range $name, $value := .env }}
{{- $_ := set $env $name (required (printf "set programs.%s.env.%s" $.name $name) $value) }}
{{- end }}
{{- if and .snapshot .root.Values.snapshotStore }}
{{- $env = set (omit $env "SNAPSHOT_DIR") "SNAPSHOT_STORE" .root.Values.snapshotStore }}
{{- end }}
{{- range $name, $value := $env }}
{{- /* Helm reads numbers as floats, and would write a million as 1e+06. */}}
- { name: {{ $name }}, value: {{ kindIs "float64" $value | ternary (toJson $value) $value | quote }} }
{{- end }}
{{- end }}

{{/* A program may connect only to DNS and to the ports of the services that it needs. */}}
{{- define "svc.egress" -}}
{{- $egress := .egress }}
{{- if and .snapshot .root.Values.snapshotStore }}
{{- $egress = append $egress "cloud" | uniq }}
{{- end }}
{{- $network := .root.Values.network }}
{{- if or $egress $network.egress }}
- to: [{ namespaceSelector: {} }]
  ports: [{ port: 53, protocol: UDP }, { port: 53, protocol: TCP }]
{{- range $egress }}
- {{ with index $network . }}to: {{- toYaml . | nindent 4 }}
  {{ end }}ports:
    {{- range eq . "cloud" | ternary $network.cloudPorts (list (index $network (printf "%sPort" .))) }}
    - { port: {{ . }} }
    {{- end }}
{{- end }}
{{- with $network.egress }}
{{ toYaml . }}
{{- end }}
{{- else }} []
{{- end }}
{{- end }}

{{- define "svc.job" -}}
backoffLimit: 3
template:
  metadata:
    labels: {{- include "svc.labels" . | nindent 6 }}
  spec:
    {{- include "svc.pod" . | nindent 4 }}
    restartPolicy: Never
    containers:
      - name: {{ .name }}
        command: [{{ join ", " .command }}]
        {{- include "svc.container" . | nindent 8 }}
        env: {{- include "svc.env" . | nindent 10 }}
        resources: { requests: { cpu: 250m, memory: 256Mi }, limits: { memory: 2Gi } }
    volumes: {{- include "svc.volumes" . | nindent 6 }}
{{- end }}
