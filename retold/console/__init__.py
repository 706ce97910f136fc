"""The reviewers' page (`retold console`): rendered on the server, worked by keyboard, of use without JavaScript.

`app` puts it together; `pages` is what a reviewer sees, `sign_in` who they are, `security` what every answer and every
request has to satisfy, whoever sends it. Record and turn texts are untrusted everywhere: `untrusted` shows them.
"""
